"""Models of GPUs: what people call them, and which models of the installation they mean.

The driver, or a label of the cluster, names the model of a node's GPUs
(``NVIDIA-A100-SXM4-80GB``). People name as much of it as tells it apart: ``A100`` means every A100,
``A100-80GB`` those with so much memory. Case and punctuation do not matter.

A machine may have GPUs of several models. Its labels then name all of them (``A100 + Tesla T4``),
and the core is told the type of each device: a condition on nodes by model or group leads to the
machine, and ``device_types`` to those of its GPUs that are meant.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from carrel_scheduler.core.requests import IN_GROUP, NodeConstraint
from carrel_scheduler.core.state import State
from carrel_schema.names import NODE_GROUP

LABEL: Final = "GPU type"
"""Told to the core as if it were a label of the node, in words that people read."""
HOSTNAME: Final = "kubernetes.io/hostname"
PRODUCT: Final = "nvidia.com/gpu.product"
"""Labels of a machine, as nodes of a cluster have them."""
UNTOLD: Final = "GPU"
"""The model of a GPU where its driver does not tell it."""
UNGROUPED: Final = "(none)"
"""The group of nodes that are in none, to the core."""
SEVERAL: Final = " + "
"""The separator of the models, or their groups, of a machine with unlike GPUs."""
_WORD: Final = re.compile(r"[a-z0-9]+")


def matching(asked: str, models: Iterable[str]) -> frozenset[str]:
    """The models whose names have all words of a short name."""
    words = _words(asked)
    return frozenset(model for model in models if words and words <= _words(model))


def of_node(names: Iterable[str]) -> frozenset[str]:
    """The models of a node's responding GPUs; empty where they are not known."""
    models = frozenset(name for name in names if name)
    return frozenset() if UNTOLD in models else models


def types_of(names: Iterable[str]) -> tuple[str, ...]:
    """The model of each GPU of a machine where they are unlike; empty where they are alike."""
    each = tuple(names)
    return each if len(of_node(each)) > 1 else ()


def labels_of(models: Collection[str], group: str = "") -> tuple[tuple[str, str], ...]:
    """The labels of a machine in the core: the models of its GPUs, and its group.

    Args:
        models: see ``of_node``.
        group: that selects the machine; empty: the ones called after the models.
    """
    told = ((LABEL, label_of(models)),) if models else ()
    named = group or _groups_label(models)
    return (*told, (IN_GROUP, named), (NODE_GROUP, named)) if named else told


def label_of(models: Collection[str]) -> str:
    """The models of a machine in one label."""
    return SEVERAL.join(sorted(models))


def group_named_after(model: str) -> str:
    """The group of GPUs of a model that are in no group that an admin defined."""
    return "-".join(_WORD.findall(model.lower()))


def single(label: str) -> str:
    """The one model or group in a label; empty where there are several."""
    return "" if SEVERAL in label else label


def place_of(state: State, node: str, devices: Collection[int] = ()) -> tuple[str, str]:
    """The GPU type and the node group of a place; empty where there is none or it is unknown.

    On a node whose GPUs are unlike they are those of the ``devices``, where these are of one type.
    """
    slot = state.nodes.slots.get(node)
    if slot is None:
        return "", ""
    fact = state.nodes.fact(slot)
    labels = dict(fact.labels)
    model, group = labels.get(LABEL, ""), labels.get(IN_GROUP, "")
    types = {fact.types[one] for one in devices if one < len(fact.types)}
    if len(types) == 1:
        (model,) = types
        if group and not single(group):
            group = group_named_after(model)
    return single(model), "" if group == UNGROUPED else single(group)


def selectable(node: str, models: Collection[str]) -> dict[str, str]:
    """The labels by which groups may select a machine: its name, and the one model of its GPUs."""
    told = {PRODUCT: "".join(models)} if len(models) == 1 else {}
    return {HOSTNAME: node} | told


def _groups_label(models: Collection[str]) -> str:
    return SEVERAL.join(sorted(map(group_named_after, models)))


def in_order(
    asked: Iterable[str], labels: Collection[str]
) -> tuple[tuple[str, frozenset[str]], ...]:
    """Labels of nodes to prefer: each type of GPU before those that were named after it.

    A node satisfies as many of them as there are types at and behind its own; a machine with GPUs
    of several models as many as the best of them.
    """
    found: list[tuple[str, frozenset[str]]] = []
    so_far: frozenset[str] = frozenset()
    for one in asked:
        so_far |= {label for label in labels if matching(one, label.split(SEVERAL))}
        found.append((LABEL, so_far))
    return tuple(found)


def devices_in_order(
    where: NodeConstraint, asked: Iterable[str], mixes: Collection[str]
) -> NodeConstraint:
    """The constraint with the types of single devices that will do, on machines with several.

    ``mixes``: labels of such machines.
    """
    models = _models_in(mixes)
    types = tuple(matching(one, models) for one in asked)
    return replace(where, device_types=types) if types and mixes else where


def within_groups(
    where: NodeConstraint, key: str, names: Collection[str], mixes: Collection[str] = ()
) -> NodeConstraint:
    """The constraint within groups of nodes.

    Args:
        where: the constraint so far.
        key: of the label that tells the group.
        names: of the groups.
        mixes: labels of machines with GPUs of several models, which are in the groups called after
            these; only those devices are then meant.
    """
    meant = frozenset(one for one in _models_in(mixes) if group_named_after(one) in names)
    machines = {
        _groups_label(mix.split(SEVERAL)) for mix in mixes if meant.intersection(mix.split(SEVERAL))
    }
    labels = (*where.labels, (key, frozenset(names) | machines))
    if not meant:
        return replace(where, labels=labels)
    types = where.device_types
    only = (meant,) if types is None else tuple(one & meant for one in types)
    return replace(where, labels=labels, device_types=only)


def _models_in(mixes: Iterable[str]) -> frozenset[str]:
    return frozenset(model for mix in mixes for model in mix.split(SEVERAL))


def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(name.lower()))
