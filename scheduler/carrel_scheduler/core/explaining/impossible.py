"""Reasons why a workload can never start: computed at submission, and while it waits.

Judged against all that the cluster has (busy, broken, drained or switched off nodes too) and all
rules of its queues: only more hardware or other rules would help.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.capacity.eligibility import ANY_TAINT
from carrel_scheduler.core.capacity.views import GPU, CapacityView, CapacityViews, FitCounts
from carrel_scheduler.core.devices.classes import GpuForm, gpu_kind
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.explaining.mig_instances import with_instances
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.layers import Bools
from carrel_scheduler.core.messages.amounts import GPU_MEMORY
from carrel_scheduler.core.queues.usage import RESOURCE_NAMES, permanent_violation
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.requests import GPU_LABELS, HOST, NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI, NONE
from carrel_scheduler.core.work.shapes import Shape

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns


MOST_LOOKS = 64
"""The most classes for which it is cached how many tasks the nodes would hold: a row each."""


def never_reason(
    state: "Columns",
    queue: int,
    shape: Shape,
    kind: Preemptibility,
    views: CapacityViews | None = None,
) -> Reason | None:
    """The reason why no node, quota or limit can ever admit the workload, or ``None``.

    A cluster without any node is still coming up and refuses nothing.

    Args:
        state: what there is.
        queue: the slot of its queue.
        shape: what it asks for.
        kind: whether it may be stopped.
        views: where views of empty nodes are kept.
    """
    if state.nodes.slots:
        found = on_nodes(state, shape, views or all_nodes(state))
        if found is not None:
            return with_instances(state, needs(shape, shape.first_step), found)
    return on_rules(state, queue, shape, kind)


def all_nodes(state: "Columns") -> CapacityViews:
    """Views of the nodes as if nobody held anything, the same as long as the nodes are."""
    nodes, cache = state.nodes, state.cache
    stamp = nodes.version, nodes.amounts_version, nodes.capacity.shape
    known = cache.views
    if known is None or known[0] != stamp or known[1].looks >= MOST_LOOKS:
        known = cache.views = stamp, CapacityViews(nodes, state.classes, state.eligible)
    return known[1]


def on_rules(state: "Columns", queue: int, shape: Shape, kind: Preemptibility) -> Reason | None:
    """The reason of a quota or limit of its queues that never admits the workload, or ``None``."""
    fixed = NONE if kind is Preemptibility.YES else shape.first
    found = permanent_violation(state.queues.table, queue, shape.first, fixed)
    if found is None:
        return None
    return Reason(
        ReasonClass.NEVER,
        found.token,
        resource=RESOURCE_NAMES[found.resource],
        requested=found.asked,
        short=found.asked - found.bound,
        bound=found.bound,
        project=found.queue,
    )


def on_nodes(state: "Columns", shape: Shape, views: CapacityViews) -> Reason | None:
    """The reason why the nodes can never hold the workload, or ``None``."""
    for cls, need in needs(shape, shape.first_step).items():
        parts = views.parts(CapacityView.WHOLE, cls)
        if not parts.mask.any():
            detail = unmet_condition(state, state.classes.request(cls))
            return Reason(ReasonClass.NEVER, Token.NO_ELIGIBLE_NODE, detail=detail)
        if views.total(CapacityView.WHOLE, cls) < need:
            return too_large(state, views, CapacityView.WHOLE, cls, need)
    return too_wide(state, shape, views, CapacityView.WHOLE, ReasonClass.NEVER)


def needs(shape: Shape, step: tuple[int, ...]) -> dict[int, int]:
    """The number of tasks of each class in a step."""
    return dict(Counter(shape.classes[index] for index in step))


def resource_name(state: "Columns", resource: int) -> str:
    """The name of a resource by its number (see ``explaining.views``)."""
    if resource < len(RESOURCE_NAMES):
        return RESOURCE_NAMES[resource]
    row = resource - 1
    return next(name for name, known in state.nodes.extended.items() if known == row)


def too_large(
    state: "Columns", views: CapacityViews, view: CapacityView, cls: int, need: int
) -> Reason:
    """The reason where so many tasks of a class do not fit even on empty nodes.

    Where one task is larger than any node's amount (of nodes that have the rest), the bound is the
    largest such node; else it is what all nodes together hold of such tasks.
    """
    parts, asked = views.parts(view, cls), views.asked(cls)
    scarce = limiting_resource(list(asked), lambda these: parts.total(these) >= need)
    never = view is CapacityView.WHOLE
    if scarce == GPU and state.classes.kinds[cls].form is GpuForm.MIG:
        return _no_instance(state, cls, need, parts.total(), never=never)
    resource, largest = resource_name(state, scarce), largest_with_rest(views, view, cls, scarce)
    form = _form_too_large(state, cls, parts) if scarce == GPU else None
    if form is not None:
        resource, requested, bound = form
    elif largest < asked[scarce]:
        requested, bound = asked[scarce], largest
    else:
        requested, bound = need * asked[scarce], parts.total() * asked[scarce]
    return Reason(
        ReasonClass.NEVER if never else ReasonClass.NOT_NOW,
        Token.NEVER_FITS if never else Token.NO_NODE_FITS,
        resource=resource,
        requested=requested,
        short=max(0, requested - bound),
        bound=bound,
        nodes=largest_nodes(state, views, view, cls, scarce) if never else (),
        detail="" if bound else _like(state, resource),
    )


def _like(state: "Columns", resource: str) -> str:
    """Extended resources of the nodes whose names have the same prefix: ``gpu-a`` for ``gpu-b``."""
    nodes = state.nodes
    kind = resource.partition("-")[0] + "-"
    there = [
        name
        for name, row in nodes.extended.items()
        if name.startswith(kind) and nodes.capacity[row].any()
    ]
    return ", ".join(f"`{name}`" for name in sorted(there)[:MOST_NAMED])


def _form_too_large(state: "Columns", cls: int, parts: FitCounts) -> tuple[str, int, int] | None:
    """The part of a share that no node has, in the terms of the request: GPUs side by side, memory.

    The resource, how much of it is asked for, and the most on a node.
    """
    kind, nodes = state.classes.kinds[cls], state.nodes
    if kind.form not in (GpuForm.SHARE, GpuForm.MEMORY):
        return None
    most = int(nodes.devices.compress(parts.mask).max(initial=0))
    if most < kind.devices:
        return resource_name(state, GPU), kind.devices * MILLI, most * MILLI
    memory = int(nodes.gpu_memory.compress(parts.mask).max(initial=0))
    if kind.form is GpuForm.MEMORY and memory < kind.amount:
        return GPU_MEMORY, kind.amount, memory
    return None


def _no_instance(state: "Columns", cls: int, need: int, bound: int, *, never: bool) -> Reason:
    return Reason(
        ReasonClass.NEVER if never else ReasonClass.NOT_NOW,
        Token.NO_MIG_INSTANCE,
        resource="mig",
        requested=need,
        short=max(0, need - bound),
        bound=bound,
        detail=state.classes.request(cls).mig_profile,
    )


def largest_with_rest(views: CapacityViews, view: CapacityView, cls: int, scarce: int) -> int:
    """The largest amount of a resource on one node that has enough of everything else."""
    there = _nodes_with_rest(views.parts(view, cls), scarce)
    return int((views.pieces(view, scarce, cls) * there).max(initial=0))


def largest_nodes(
    state: "Columns", views: CapacityViews, view: CapacityView, cls: int, scarce: int
) -> tuple[str, ...]:
    """The name of the first node that has this largest amount."""
    there = _nodes_with_rest(views.parts(view, cls), scarce)
    amounts = views.amounts(view, scarce) * there
    best = np.flatnonzero(there & (amounts == amounts.max(initial=0)))
    return tuple(sorted(state.nodes.names[slot] for slot in best.tolist())[:1])


def _nodes_with_rest(
    parts: FitCounts, scarce: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    rest = [other for other in parts.by_resource if other != scarce]
    there = parts.counts(rest) > 0
    return there if there.any() else parts.mask


def too_wide(
    state: "Columns", shape: Shape, views: CapacityViews, view: CapacityView, cls: ReasonClass
) -> Reason | None:
    """The reason where no domain holds the tasks, or there are too few to keep them apart."""
    return _level(state, shape, views, view, cls) or _apart(state, shape, views, view, cls)


def _level(
    state: "Columns", shape: Shape, views: CapacityViews, view: CapacityView, cls: ReasonClass
) -> Reason | None:
    first = 0
    wanted = set(shape.first_step)
    for group, size in _groups(shape.group):
        begin, first = first, first + (size if group.is_leaf else 0)
        if group.level is None or not group.level.required:
            continue
        step = tuple(i for i in range(begin, begin + size) if i in wanted)
        found = needs(shape, step)
        if len(found) != 1:
            continue
        ((member, need),) = found.items()
        parts = views.parts(view, member)
        proof = state.topologies.impossible(group.level, parts.mask, parts.counts(), need)
        if proof is not None:
            return Reason(
                cls,
                Token.TOPOLOGY_TOO_SMALL,
                resource="tasks",
                requested=need,
                short=need - proof[0],
                bound=proof[0],
                detail=group.level.required,
            )
    return None


def _groups(group: Group) -> list[tuple[Group, int]]:
    """All groups in the order of their first tasks, outer ones first, with their sizes."""
    if group.is_leaf:
        return [(group, len(group.requests))]
    inside = [entry for child in group.groups for entry in _groups(child)]
    return [(group, sum(size for inner, size in inside if inner.is_leaf)), *inside]


def _apart(
    state: "Columns", shape: Shape, views: CapacityViews, view: CapacityView, cls: ReasonClass
) -> Reason | None:
    for member, need in needs(shape, shape.first_step).items():
        key = state.classes.request(member).where.apart
        if not key:
            continue
        counts = views.parts(view, member).counts() > 0
        domains = state.topologies.domains(key, len(counts))
        have = len(set(domains.compress(counts & (domains >= 0)).tolist()))
        if have < need:
            return Reason(
                cls,
                Token.TOPOLOGY_TOO_SMALL,
                resource="tasks",
                requested=need,
                short=need - have,
                bound=have,
                detail=APART_HOSTS if key == HOST else f"one {key} each",
            )
    return None


APART_HOSTS = "one node each"
MOST_NAMED = 8


EVERY_TAINT = frozenset({ANY_TAINT})


def unmet_condition(state: "Columns", request: Request) -> str:
    """The unmet condition, in words, of a request that no node of the cluster satisfies.

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
    """The request without each of its conditions in turn, with that condition; empty for taints."""
    where = request.where
    found = [(_at(request, replace(where, tolerations=EVERY_TAINT)), "")]
    if where.nodes is not None:
        found.append((_at(request, replace(where, nodes=None)), _names(where)))
    for label in where.labels:
        rest = tuple(other for other in where.labels if other != label)
        words = _form(request) if label[0] in GPU_LABELS else _label(*label)
        found.append((_at(request, replace(where, labels=rest)), words))
    found.append((_without_gpus(request), _form(request)))
    return found


def _one_alone(request: Request) -> list[tuple[Request, str]]:
    """The request with each of its conditions alone, with that condition."""
    where = request.where
    free = NodeConstraint(tolerations=EVERY_TAINT)
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


def _at(request: Request, where: NodeConstraint) -> Request:
    return replace(request, where=where)


def _names(where: NodeConstraint) -> str:
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
    if form is GpuForm.MIG:
        return f"GPUs that can be divided into `{request.mig_profile}`"
    if form is GpuForm.MEMORY:
        return f"GPUs with {request.gpu_memory_mib / 1024:g} GiB of memory to share"
    if form is GpuForm.SHARE:
        return "GPUs that are shared by parts"
    if form is GpuForm.WHOLE:
        return "GPUs that are given as a whole"
    return "nothing in particular"


def limiting_resource(asked: Sequence[int], can_be_had: Callable[[Sequence[int]], bool]) -> int:
    """The resource that makes a request impossible, where ``asked`` together is not available.

    One that could not be had even if nothing else were asked for; else one without which the rest
    could be had, GPUs last, because asking for less of anything else is easier.

    Args:
        asked: the resources, GPUs first.
        can_be_had: whether these of them could be had together.
    """
    for resource in asked:
        if not can_be_had([resource]):
            return resource
    for resource in reversed(asked):
        if can_be_had([other for other in asked if other != resource]):
            return resource
    return next(iter(asked), 0)
