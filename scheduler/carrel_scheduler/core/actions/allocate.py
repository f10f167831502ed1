"""Allocate: pending work takes free capacity, in the order of service.

What does not fit now but does once terminating tasks have ended gets those places reserved. What
fits nowhere blocks nobody: later work is still tried (backfill). Work with reserved places starts
elsewhere at once when other capacity has become free. Beyond its minimum a job grows
step by step, each time after the rest of its queue.
"""

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import OfferResult
from carrel_scheduler.core.cycle.offers import FeasibleRows, Offers
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.cycle.starvation import is_held_back
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.work.jobs import JobInfo


def allocate(cycle: Cycle) -> None:
    """Start pending work on idle capacity, or reserve capacity that is being released for it."""
    feasible = FeasibleRows(cycle)
    partial = [job for _, job in sorted(cycle.state.partial.items())]
    held = cycle.moves.reserved
    offers = Offers(
        cycle,
        feasible.rows(),
        [job for job in partial if not (job.uid in held or is_held_back(cycle, job))],
        feasible,
        [job for job in partial if job.uid in held and not _waits_for_its_own(cycle, job)],
    )
    offers.run(lambda job, step: _attempt(cycle, feasible, job, step))


def _attempt(
    cycle: Cycle, feasible: FeasibleRows, job: JobInfo, step: tuple[int, ...]
) -> OfferResult:
    if job.spec.uid in cycle.moves.reserved:
        return _start_elsewhere(cycle, job)
    if cycle.over_limit(job, step) is not None:
        return OfferResult.NO
    if feasible.now(job, step) and place(cycle, job, step, soon=False):
        return OfferResult.SERVED
    if feasible.soon(job) and place(cycle, job, step, soon=True):
        return OfferResult.SERVED
    return OfferResult.NO


def _start_elsewhere(cycle: Cycle, job: JobInfo) -> OfferResult:
    held = sorted(cycle.moves.reserved[job.spec.uid])
    fixed = cycle.is_fixed(job)
    mark = cycle.moves.mark()
    for index in held:
        cycle.moves.unreserve(job, index, fixed=fixed)
    if place(cycle, job, held, soon=False) and cycle.works(job, held):
        return OfferResult.SERVED
    cycle.moves.rollback(mark)
    return OfferResult.NOT_THIS


def _waits_for_its_own(cycle: Cycle, job: JobInfo) -> bool:
    """Whether it is clear without trying that it starts nowhere but on its reserved places."""
    places = cycle.moves.reserved[job.uid]
    if any(index in job.rows for index in places):
        return True  # it moves, and has not ended yet
    if any(cycle.state.capacity.total(job.shape.classes[index]) > 0 for index in places):
        return False
    return job.shape.tasks > 1 or not _has_own(cycle, places[0])


def _has_own(cycle: Cycle, held: Footprint) -> bool:
    """Whether a task may fit on the node of its reservation, by what is free there."""
    free, node = cycle.free_capacity.free, held.node
    if any(amount > free.host.item(row, node) for row, amount in enumerate(held.host) if amount):
        return False
    there = free.devices[:, node].tolist()
    suited = sum(milli >= held.share for milli in there)
    return bool(suited >= len(held.devices))
