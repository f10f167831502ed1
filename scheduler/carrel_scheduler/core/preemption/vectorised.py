"""Victims for plain steps by the search over arrays, where many may be evicted.

Plain is: equal tasks without a level, whole devices or shares. The search is used only where its
``Budgets`` say all there is to say about what may be taken.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause, Move
from carrel_scheduler.core.devices.classes import GpuForm
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.preemption.candidates import Times, VictimTable, victims_of
from carrel_scheduler.core.preemption.group_quotas import GroupClaim, GroupGuarantees
from carrel_scheduler.core.preemption.legality import Budgets, ReclaimRequest, reclaim_protects_s
from carrel_scheduler.core.preemption.node_prefilter import (
    enough_in_all,
    likely_nodes,
)
from carrel_scheduler.core.preemption.search.model import (
    Cleared,
    GangRequest,
    SearchLimitReached,
    lay_out,
    refused_by_sums,
)
from carrel_scheduler.core.preemption.search.search import search
from carrel_scheduler.core.preemption.victim_order import costed
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.requests import HOST
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.work.jobs import JobInfo

FEW = 40
"""Up to so many candidates are searched sequentially as well: in that search victims are taken from
queue after queue, as each becomes less over-served than the next."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The possible victims and the budgets of their queues; no table: not enough in all."""

    table: VictimTable | None
    budgets: Budgets


def request_of(cycle: Cycle, job: JobInfo, step: tuple[int, ...]) -> GangRequest | None:
    """The step as a request of the search over arrays; ``None`` where it is not plain.

    Nor where limits in groups of nodes bind: which nodes they leave changes with every place; nor
    where the types of single devices count.
    """
    shape, classes = job.shape, cycle.state.classes
    kind = classes.kinds[shape.cls]
    if not shape.plain and not (shape.apart == HOST and shape.alike and not shape.levelled):
        return None
    if cycle.limited_by_group(job) or job.rows or cycle.answered(job) or step != shape.first_step:
        return None
    if (
        kind.form not in (GpuForm.NONE, GpuForm.WHOLE, GpuForm.SHARE)
        or len(classes.host(shape.cls)) > 2
    ):
        return None
    if kind.types is not None:
        return None
    width, size, cpu, memory = classes.clearing_kind(shape.cls)
    return GangRequest(len(step), width, size, cpu, memory, most_per_node=1 if shape.apart else 0)


def budgets_of(
    cycle: Cycle, reclaim: ReclaimRequest, known: Budgets | None = None
) -> Budgets | None:
    """The budgets, or ``None`` where capacity must come from certain queues.

    ``known``: the request's budgets, where they were worked out before.
    """
    if reclaim.needs():
        return None
    return _strict(cycle, known or reclaim.budgets())


def _strict(cycle: Cycle, budgets: Budgets) -> Budgets:
    """``Budgets.by_excess`` for the tasks that there are."""
    if not (budgets.most < NO_BOUND).any():
        return budgets
    tasks = cycle.state.tasks
    return budgets.by_excess((tasks.gpu.max(initial=0), *tasks.host[:2].max(axis=1, initial=0)))


def open_budgets(cycle: Cycle) -> Budgets:
    """Budgets without any bound."""
    tree = cycle.queue_usage.table.tree
    return Budgets.of(tree, np.full((tree.size, 3), NO_BOUND, np.int64))


def make_room(
    cycle: Cycle,
    job: JobInfo,
    request: GangRequest,
    offer: Offer,
    causes: tuple[Cause, Cause],
    one_by_one: Callable[[], bool],
) -> bool:
    """Evict victims and reserve their places for a plain step.

    Args:
        cycle: the cycle.
        job: the preemptor.
        request: its step.
        offer: those who may be evicted, and how much their queues may lose.
        causes: what victims of other queues are told, and those of the preemptor's own queue.
        one_by_one: the sequential search; asked where there are few, and where the table does not
            hold everything that could be given.
    """
    table, budgets = offer.table, offer.budgets
    if table is None:
        return False
    free, of_units = table.free_capacity(job.shape.cls), table.budgets(budgets)
    few = are_few(table)
    if not (few or table.left_out) and refused_by_sums(request, free, of_units):
        return False
    plain = table.plain()
    layout = lay_out(free, plain, of_units)
    weighed = None if bool(budgets.open.all()) else budgets.excess
    layout.later = lambda: costed(table, plain, weighed)
    answer = search(request, layout)
    few |= table.left_out and not isinstance(answer, Cleared)
    if not isinstance(answer, Cleared):
        if few and one_by_one():
            return True
        if isinstance(answer, SearchLimitReached) and job.waiting is not None:
            cycle.not_found.add(job.waiting.id)
        return False
    mark = cycle.moves.mark()
    if few and one_by_one():
        if _cost(cycle, table, layout.candidates.cost, mark) <= answer.cost:
            return True
        cycle.moves.rollback(mark)
    if table.nodes is not None:
        answer = replace(answer, nodes=table.nodes.take(answer.nodes))
    return _carry_out(cycle, job, table, answer, causes)


def are_few(table: VictimTable) -> bool:
    """Whether the candidates are searched sequentially as well."""
    return len(table.rows) <= FEW and table.nodes is None


def _cost(cycle: Cycle, table: VictimTable, cost: Counts, mark: int) -> int:
    """The loss of the moves since ``mark``, in the measure of ``cost``."""
    rows = [
        move.job.rows[move.index]
        for move in cycle.moves.log[mark:]
        if isinstance(move, Move) and move.cause is not None
    ]
    units = np.unique(table.unit[np.isin(table.rows, rows)])
    return int(cost.take(units).sum())


def _carry_out(
    cycle: Cycle, job: JobInfo, table: VictimTable, answer: Cleared, causes: tuple[Cause, Cause]
) -> bool:
    """``causes``: what others are told, and what victims of the preemptor's own queue are."""
    moves, tasks = cycle.moves, cycle.state.tasks
    mark, rows = moves.mark(), table.rows_of(answer.units)
    own = tasks.victim.take(rows) == job.queue
    for cause, some in zip(causes, (rows[~own], rows[own]), strict=True):
        if len(some):
            moves.evict_many(some, cause)
    step = job.shape.first_step
    if cycle.over_limit(job, step) is None and _hold(cycle, job, step, answer.nodes):
        return True
    moves.rollback(mark)
    return False


def _hold(cycle: Cycle, job: JobInfo, step: tuple[int, ...], nodes: Counts) -> bool:
    cls, moves = job.shape.cls, cycle.moves
    kind = cycle.state.classes.kinds[cls]
    fixed = cycle.is_fixed(job)
    if kind.form is GpuForm.WHOLE and not cycle.state.nodes.mig.any():
        masks = _whole_nodes(cycle, nodes, kind.amount)
        if masks is not None:
            moves.reserve_many(job, step, nodes, masks, fixed=fixed)
            return True
    for index, node in zip(step, nodes.tolist(), strict=True):
        place = cycle.footprint(cls, node, soon=True)
        if place is None:
            return False
        moves.reserve(job, index, place, fixed=fixed)
    return True


def _whole_nodes(
    cycle: Cycle, nodes: Counts, devices: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]] | None:
    """(m,) bits of all free devices of each node, where each is just enough for one task."""
    if int(np.bincount(nodes).max(initial=0)) > 1:
        return None
    free: Bools = cycle.free_capacity.soon.devices.take(nodes, 1) >= MILLI
    if bool((free.sum(axis=0) != devices).any()):
        return None
    bits = np.uint64(1) << np.arange(len(free), dtype=np.uint64)
    return np.asarray((free.T * bits).sum(axis=1, dtype=np.uint64))


def from_others(
    cycle: Cycle,
    reclaim: ReclaimRequest,
    job: JobInfo,
    request: GangRequest,
    protection: GroupGuarantees | None = None,
) -> Offer | None:
    """Candidates of other queues and their budgets; ``None`` if they cannot be computed.

    ``protection``: what queues keep in groups of nodes.
    """
    budgets = budgets_of(cycle, reclaim)
    if budgets is None:
        return None
    giving: Bools = np.asarray((budgets.excess > 0).any(axis=1))
    found = offer(
        cycle,
        job,
        request,
        giving,
        budgets,
        near=cycle.over_quota_queues,
        below=reclaim.kept_priorities(giving),
        protected_s=protected_s(cycle, job.queue),
    )
    if found.table is None:
        return found
    return Offer(beyond(found.table, budgets, protection), budgets)


def beyond(table: VictimTable, budgets: Budgets, protection: GroupGuarantees | None) -> VictimTable:
    """The victims of whom anything may be taken, in all and in groups of nodes."""
    found = table.that_hold(budgets.excess)
    return found if protection is None else protection.spare(found)


def from_group(cycle: Cycle, job: JobInfo, request: GangRequest, claim: GroupClaim) -> Offer:
    """Candidates that hold GPUs in the group of a claim, and their budgets.

    A unit counts with all that it holds, also elsewhere: stricter than need be where it is divided.
    """
    budgets = _strict(cycle, claim.request.budgets())
    giving: Bools = np.asarray((budgets.excess > 0).any(axis=1))
    nodes = np.flatnonzero(claim.nodes)
    if not cycle.looks_at_all(request.tasks):
        nodes = likely_nodes(cycle, job.shape.cls, request.tasks, giving, claim.nodes)
    if not len(nodes):
        return Offer(None, budgets)
    table = victims_of(cycle, giving, protected_s=protected_s(cycle, job.queue), nodes=nodes)
    there = claim.nodes.take(cycle.state.tasks.node.take(table.rows))
    table = table.only(np.bincount(table.unit, table.gpu * there, len(table.first)) > 0)
    return Offer(table.that_hold(budgets.excess), budgets)


def offer(
    cycle: Cycle,
    job: JobInfo,
    request: GangRequest,
    giving: Bools,
    budgets: Budgets,
    *,
    near: Bools | None = None,
    below: int | Counts | None = None,
    protected_s: Times | None = None,
) -> Offer:
    """The victims of these queues; in a large cluster only on promising nodes.

    ``near`` (Q,): by what these could give nodes are chosen, where not by what ``giving`` could.
    """
    nodes = None
    if not cycle.looks_at_all(request.tasks):
        nodes = likely_nodes(cycle, job.shape.cls, request.tasks, giving if near is None else near)
        if not len(nodes):
            return Offer(None, budgets)
    elif not cycle.is_small and not enough_in_all(cycle, job.shape.cls, request.tasks, giving):
        return Offer(None, budgets)
    return Offer(victims_of(cycle, giving, below, protected_s=protected_s, nodes=nodes), budgets)


def protected_s(cycle: Cycle, preemptor: int) -> Times | None:
    """(Q,) the seconds for which running work of each queue is protected, if any."""
    table, least = cycle.queue_usage.table, cycle.settings.min_runtime_s
    rules = [rule for rule in table.rules if rule is not None]
    if not least and all(rule.reclaim_min_runtime_s is None for rule in rules):
        return None
    queues = range(len(table.rules))
    return np.array(
        [
            reclaim_protects_s(table, preemptor, queue, least) if table.path[queue] else 0.0
            for queue in queues
        ]
    )
