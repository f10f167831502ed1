"""Consolidate: running preemptible work moves so that a larger workload fits.

Nothing moves unless everything that moves has a place, held for it in the same plan. Interactive
work and what may not be stopped never move. The nodes that lack least are tried first: on each,
those are found whose moving loses the least work, the task takes their place, and they look for
places elsewhere (``relocation``). Unlike tasks and levels are left to the search one by one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle, FailedInCycle
from carrel_scheduler.core.cycle.failed_searches import OfferResult, answered
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.nodes.nodes import MOST_DEVICES
from carrel_scheduler.core.preemption import preemptors
from carrel_scheduler.core.preemption.node_prefilter import candidate_jobs
from carrel_scheduler.core.preemption.preemptors import Rule, Step
from carrel_scheduler.core.preemption.relocation import (
    NodeTask,
    have_places,
    occupants,
    relocate,
    relocate_together,
    tasks_to_move,
)
from carrel_scheduler.core.preemption.sequential import Search, everybody
from carrel_scheduler.core.preemption.victim_order import OrderedVictims
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.work.jobs import JobInfo

NODES = 24
"""The number of nodes that are tried for a step, besides two for each of its tasks."""
FEW_NODES = 4
"""The same for a large cluster."""
ATTEMPTS = 2
"""The number of failed offers that end the action: what does not fit asks in every cycle."""
WHOLE_ACTION = ("consolidate",)
"""The key of the action among the searches of a cycle that failed."""


class Site(NamedTuple):
    """A node, and the tasks on it at the start of the search."""

    node: int
    here: list[NodeTask]


MakePlace = Callable[[Cycle, JobInfo, int, Site, Cause], list[NodeTask] | None]
"""Makes a place for one task on a node; those who move for it, ``None`` where there is no way."""


def _find(cycle: Cycle, job: JobInfo, step: Step) -> OfferResult:
    """Free capacity for a step by moving others."""
    if job.shape.plain:
        return answered(_step_by_step(cycle, job, step))
    everybody_else = np.ones(len(cycle.queue_usage.used), np.bool_)
    movable = [
        v for v in candidate_jobs(cycle, job, step, everybody_else) if not v.spec.interactive
    ]
    ordered = OrderedVictims(cycle, movable, lambda _: False)
    search = Search(cycle, job, step, Cause(Token.CONSOLIDATED, job), everybody)
    return answered(search.run(ordered.units(lambda _: True)))


def _enough_in_all(cycle: Cycle, job: JobInfo, step: Step) -> bool:
    """Whether the free capacity of all nodes together would hold the step."""
    pairs = zip(cycle.demand(job, step), cycle.free_in_all(), strict=True)
    return all(asked <= there for asked, there in pairs)


def _step_by_step(cycle: Cycle, job: JobInfo, step: Step) -> bool:
    """A place for each task of a plain step, one after the other.

    Those who free capacity for several tasks get their new places together, where that works out.
    """
    mark = cycle.moves.mark()
    if len(step) > 1:
        going = _make_places(cycle, job, step, _clear)
        if going and relocate_together(cycle, going):
            return True
        cycle.moves.rollback(mark)
        if not going:
            return False
    if _make_places(cycle, job, step, _clear_and_relocate):
        return True
    cycle.moves.rollback(mark)
    return False


def _make_places(cycle: Cycle, job: JobInfo, step: Step, make: MakePlace) -> list[NodeTask] | None:
    """All moves that make a place for each task; ``None`` where a task gets none."""
    cause = Cause(Token.CONSOLIDATED, job)
    left, going = list(step), list[NodeTask]()
    tries = (NODES if cycle.is_small else FEW_NODES) + 2 * len(step)
    for site in _nodes(cycle, job.shape.cls, tries):
        while left:
            moved = make(cycle, job, left[0], site, cause)
            if moved is None:
                break
            going += moved
            left.pop(0)
        if not left and going:
            return going
    return None


def _nodes(cycle: Cycle, cls: int, most: int) -> Iterator[Site]:
    """Eligible nodes with their tasks, those that lack least first."""
    state, tasks, soon = cycle.state, cycle.state.tasks, cycle.free_capacity.soon
    eligible = state.eligible.of(state.classes.request(cls))
    nodes = np.flatnonzero(eligible)
    free = soon.devices.take(nodes, 1)
    amount = free.sum(axis=0, dtype=np.int64)
    whole = (free == free.max(initial=1)).sum(axis=0, dtype=np.int64)
    if not state.classes.takes_gpu(cls):
        amount = soon.host[0].take(nodes)
    better = amount * (MOST_DEVICES + 1) + whole
    rank = state.nodes.rank.take(nodes)
    key = (int(better.max(initial=0)) - better) * (2 * len(eligible)) + rank
    best = np.argpartition(key, most)[:most] if most < len(nodes) else np.arange(len(nodes))
    best = best.take(np.argsort(key.take(best)))
    for node in nodes.take(best).tolist():
        yield Site(node, occupants(cycle, tasks.preemptible_usage.on(np.array([node])).tolist()))


def _clear(
    cycle: Cycle, job: JobInfo, index: int, site: Site, cause: Cause
) -> list[NodeTask] | None:
    """Relocate tasks so that a task has its place; returns them, or ``None`` if impossible."""
    return next(_cleared(cycle, job, index, site, cause), None)


def _cleared(
    cycle: Cycle, job: JobInfo, index: int, site: Site, cause: Cause
) -> Iterator[list[NodeTask]]:
    """Yield ways to clear a place; asking for the next one takes back the last."""
    staying = [one for one in site.here if not cycle.moves.evicted.item(one.row)]
    for going in tasks_to_move(cycle, job.shape.cls, site.node, staying):
        if have_places(cycle, going) and _tell_to_move(cycle, job, index, site, going, cause):
            yield going


def _tell_to_move(
    cycle: Cycle, job: JobInfo, index: int, site: Site, going: list[NodeTask], cause: Cause
) -> bool:
    """Whether a task has its place when these are told to move; else nothing changes."""
    moves, state = cycle.moves, cycle.state
    mark = moves.mark()
    for one in going:
        moves.evict(state.jobs.at(one.job), state.tasks.index.item(one.row), cause)
    footprint = cycle.footprint(job.shape.cls, site.node, soon=True)
    if footprint is None or not cycle.within_group_limits(job, footprint):
        moves.rollback(mark)
        return False
    moves.reserve(job, index, footprint, fixed=cycle.is_fixed(job))
    return True


def _clear_and_relocate(
    cycle: Cycle, job: JobInfo, index: int, site: Site, cause: Cause
) -> list[NodeTask] | None:
    """``_clear``, with a new place for each evicted task; ``None`` where one finds none."""
    mark = cycle.moves.mark()
    for going in _cleared(cycle, job, index, site, cause):
        if relocate(cycle, going):
            return going
        cycle.moves.rollback(mark)
    return None


def _refuses(cycle: Cycle, job: JobInfo, step: Step) -> OfferResult | None:
    """A step must be within the limits, and all free capacity together must hold it."""
    if cycle.delayed(job):
        return OfferResult.NOT_THIS
    if cycle.over_limit(job, step) is not None or not _enough_in_all(cycle, job, step):
        return OfferResult.NO
    return None


def _refuses_over_quota(cycle: Cycle, job: JobInfo, step: Step) -> OfferResult | None:
    """Workloads over quota come last: what moved for them is lost if they are evicted."""
    if not cycle.within_share(job, step):
        return OfferResult.NOT_THIS
    return _refuses(cycle, job, step)


def consolidate_for_entitled(cycle: Cycle) -> None:
    """Move work for those within their fair share.

    Where that moves nothing, and nobody was passed over, ``CONSOLIDATE`` would ask the same again.
    """
    passed_over = list[JobInfo]()

    def refuses(cycle: Cycle, job: JobInfo, step: Step) -> OfferResult | None:
        answer = _refuses_over_quota(cycle, job, step)
        if answer is OfferResult.NOT_THIS:
            passed_over.append(job)
        return answer

    last = cycle.moves.last
    replace(CONSOLIDATE, refuses=refuses).run(cycle)
    if not passed_over and cycle.moves.last is last:
        cycle.failed_searches[WHOLE_ACTION] = FailedInCycle(last, plainly=True, not_found=False)


def asks_again(cycle: Cycle) -> bool:
    """Whether this was not asked of everybody since the last move."""
    failed = cycle.failed_searches.get(WHOLE_ACTION)
    return failed is None or failed.last is not cycle.moves.last


CONSOLIDATE = Rule(
    "consolidate",
    preemptors.for_consolidate,
    _find,
    _refuses,
    most=lambda cycle, _: ATTEMPTS if cycle.is_small else 1,
    served=preemptors.most_served,
)
CONSOLIDATE_FOR_ENTITLED = replace(CONSOLIDATE, refuses=_refuses_over_quota)
"""The rule for work within its fair share."""
