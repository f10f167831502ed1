"""Which of the conditions on nodes leaves none: the one without which some node would do."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.capacity.eligible import ANY_TAINT
from carrel_scheduler.core.devices.classes import Form, gpu_kind
from carrel_scheduler.core.layers import Bools
from carrel_scheduler.core.requests import HOST, Request, Where

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns

EVERY_TAINT = frozenset({ANY_TAINT})


def unmet_condition(state: "Columns", request: Request) -> str:
    """In words, for a request that no node of the cluster satisfies.

    The one condition without which some node would do; else the first that no node satisfies.
    """
    for without, words in _with_one_less(request):
        mask = state.eligible.ever(without)
        if mask.any():
            return words or _taint_of(state, mask)
    for alone, words in _one_alone(request):
        if not state.eligible.ever(alone).any():
            return words
    return "a combination of conditions that no node has"


def _with_one_less(request: Request) -> list[tuple[Request, str]]:
    """The request without one of its conditions, and that one; empty for taints."""
    where = request.where
    found = [(_at(request, replace(where, tolerations=EVERY_TAINT)), "")]
    if where.nodes is not None:
        found.append((_at(request, replace(where, nodes=None)), _names(where)))
    for label in where.labels:
        rest = tuple(other for other in where.labels if other != label)
        found.append((_at(request, replace(where, labels=rest)), _label(*label)))
    found.append((_without_gpus(request), _form(request)))
    return found


def _one_alone(request: Request) -> list[tuple[Request, str]]:
    """The request with one of its conditions alone."""
    where = request.where
    free = Where(tolerations=EVERY_TAINT)
    bare = _without_gpus(_at(request, free))
    found = [] if where.nodes is None else [(replace(free, nodes=where.nodes), _names(where))]
    found += [(replace(free, labels=(label,)), _label(*label)) for label in where.labels]
    return [
        *((_at(bare, only), words) for only, words in found),
        (_at(request, free), _form(request)),
    ]


def _taint_of(state: "Columns", mask: Bools) -> str:
    """The first of the taints of these nodes, by name."""
    taints = [state.nodes.fact(slot).taints for slot in np.flatnonzero(mask).tolist()]
    first = min((taint for each in taints for taint in each), default="")
    return f"to be without the taint `{first}`"


def _without_gpus(request: Request) -> Request:
    return replace(request, gpus=0, share_milli=0, gpu_memory_mib=0, mig_profile="", devices=1)


def _at(request: Request, where: Where) -> Request:
    return replace(request, where=where)


def _names(where: Where) -> str:
    names = sorted(where.nodes or ())
    shown = ", ".join(f"`{name}`" for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"to be one of {shown}{more}" if names else "to be one of none"


def _label(key: str, values: frozenset[str]) -> str:
    shown = " or ".join(f"`{value}`" for value in sorted(values)[:3])
    more = f" or {len(values) - 3} more" if len(values) > 3 else ""
    name = "the name" if key == HOST else f"`{key}`"
    return f"{name} {shown}{more}"


def _form(request: Request) -> str:
    form = gpu_kind(request).form
    if form is Form.MIG:
        return f"GPUs that can be divided into `{request.mig_profile}`"
    if form is Form.MEMORY:
        return f"GPUs with {request.gpu_memory_mib / 1024:g} GiB of memory to share"
    if form is Form.SHARE:
        return "GPUs that are shared by parts"
    return "nothing in particular"
