"""Where pods may run, worked out over the nodes and pods that there are.

The core knows labels, taints and sets of nodes. Everything else that a pod may ask of its place
becomes a set of nodes here, and is asked again when what it depends on has changed.
"""

from carrel_scheduler.engines.kubernetes.pods.places.asking import Ask, Places
from carrel_scheduler.engines.kubernetes.pods.places.volumes import (
    BindVolume,
    Decision,
    SelectNode,
    Volumes,
)

__all__ = ["Ask", "BindVolume", "Decision", "Places", "SelectNode", "Volumes"]
