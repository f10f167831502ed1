"""Models of GPUs: what people call them, and which models of the installation they mean.

A node has GPUs of one model, named by the driver or by a label of the cluster
(``NVIDIA-A100-SXM4-80GB``). People name as much of it as tells it apart: ``A100`` means every A100,
``A100-80GB`` those with so much memory. Case and punctuation do not matter.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final

from carrel_scheduler.core.requests import IN_GROUP
from carrel_schema.names import NODE_GROUP

LABEL: Final = "GPU type"
"""Told to the core as if it were a label of the node, in words that people read."""
HOSTNAME: Final = "kubernetes.io/hostname"
PRODUCT: Final = "nvidia.com/gpu.product"
"""Labels of a machine, as nodes of a cluster have them."""
UNTOLD: Final = "GPU"
"""What a GPU is called of which nobody tells the model."""
_WORD: Final = re.compile(r"[a-z0-9]+")


def matching(asked: str, models: Iterable[str]) -> frozenset[str]:
    """The models whose names have all words of a short name."""
    words = _words(asked)
    return frozenset(model for model in models if words and words <= _words(model))


def of_node(names: Iterable[str]) -> frozenset[str]:
    """The model of a node's GPUs; empty where they are of several, or nobody tells of which."""
    models = frozenset(names)
    return models if len(models) == 1 and UNTOLD not in models else frozenset()


def labels_of(models: Collection[str], group: str = "") -> tuple[tuple[str, str], ...]:
    """What the core is told of a machine: the model of its GPUs, and its group.

    Args:
        models: the one model, or none (see ``of_node``).
        group: that selects the machine; empty: the one called after the model.
    """
    told = tuple((LABEL, model) for model in models)
    named = group or "".join("-".join(_WORD.findall(model.lower())) for model in models)
    return (*told, (IN_GROUP, named), (NODE_GROUP, named)) if named else told


def selectable(node: str, models: Collection[str]) -> dict[str, str]:
    """The labels by which groups may select a machine: its name, and the model of its GPUs."""
    told = {PRODUCT: "".join(models)} if models else {}
    return {HOSTNAME: node} | told


def in_order(
    asked: Iterable[str], models: Collection[str]
) -> tuple[tuple[str, frozenset[str]], ...]:
    """Labels of nodes to prefer: each type of GPU before those that were named after it.

    A node satisfies as many of them as there are types at and behind its own.
    """
    found: list[tuple[str, frozenset[str]]] = []
    so_far: frozenset[str] = frozenset()
    for one in asked:
        so_far |= matching(one, models)
        found.append((LABEL, so_far))
    return tuple(found)


def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(name.lower()))
