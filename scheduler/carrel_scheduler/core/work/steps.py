"""The steps in which a gang starts, grows and gives back, in one place.

All are pure functions of a ``Structure`` (the shape of the tree, prepared once) and of one
``LeafState`` for each leaf: ``growing`` says what starts next, ``shedding`` what goes first and
what runs in vain.
"""

from carrel_scheduler.core.work.growing import (
    Step,
    first_step,
    next_step,
    ready,
    satisfied,
)
from carrel_scheduler.core.work.shedding import Shed, is_stale, shed_steps, stale_tasks
from carrel_scheduler.core.work.structures import LeafState, Structure, structure_of

__all__ = [
    "LeafState",
    "Shed",
    "Step",
    "Structure",
    "first_step",
    "is_stale",
    "next_step",
    "ready",
    "satisfied",
    "shed_steps",
    "stale_tasks",
    "structure_of",
]
