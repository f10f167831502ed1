"""Nodes whose GPUs are MIG instances, told to work that asks for whole GPUs, or for shares of such.

An instance is never given in place of them unasked: a program may need all of a GPU, or its memory.
So the reason says where the GPUs are divided, and what to ask for instead.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.devices.classes import GpuForm
from carrel_scheduler.core.layers import Bools
from carrel_scheduler.core.mig import named_profile
from carrel_scheduler.core.reasons import Reason, Token
from carrel_scheduler.core.requests import GPU_LABELS
from carrel_scheduler.core.resources import MILLI

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns

OF_NODES = (Token.NO_ELIGIBLE_NODE, Token.NODES_CLOSED)
"""Reasons that are about nodes, whatever is asked of them."""
MANY = 5
"""The most nodes that are named."""


def with_instances(state: "Columns", classes: Iterable[int], reason: Reason) -> Reason:
    """The reason with what is said of divided GPUs, where it is about GPUs.

    Args:
        state: what there is.
        classes: of the tasks that it is about.
        reason: why they wait.
    """
    if reason.resource != "gpu" and reason.token not in OF_NODES:
        return reason
    for cls in classes:
        mask = _divided_for(state, cls)
        if mask is not None and mask.any():
            slots = sorted(np.flatnonzero(mask).tolist(), key=lambda slot: state.nodes.names[slot])
            facts = [state.nodes.fact(slot) for slot in slots[:MANY]]
            return replace(
                reason,
                divided=tuple(one.name for one in facts),
                instead=_instead(state, cls, [name for one in facts for name in one.profiles]),
            )
    return reason


def _divided_for(state: "Columns", cls: int) -> Bools | None:
    """(N,) nodes that it may use but for its form; ``None`` for one that instances serve."""
    nodes, form = state.nodes, state.classes.kinds[cls].form
    if form is GpuForm.WHOLE:
        found = nodes.divided
    elif form is GpuForm.SHARE:
        found = nodes.profiled
    else:
        return None
    if not found.any():
        return None
    where = state.classes.request(cls).where
    labels = tuple(one for one in where.labels if one[0] not in GPU_LABELS)
    there: Bools = found & state.eligible.mask(replace(where, labels=labels))
    return there


def _instead(state: "Columns", cls: int, profiles: Iterable[str]) -> str:
    kind = state.classes.kinds[cls]
    if kind.form is GpuForm.WHOLE:
        return named_profile(profiles, MILLI) if kind.amount == 1 else ""
    return named_profile(profiles, kind.amount) if kind.devices == 1 else ""
