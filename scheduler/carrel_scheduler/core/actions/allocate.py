"""Allocate: pending work takes free capacity, in the order of service.

What does not fit now but does once terminating tasks have ended gets those places reserved. What
fits nowhere blocks nobody: later work is still tried (backfill). Work with reserved places starts
elsewhere at once when other capacity has become free. Beyond its minimum a job grows
step by step, each time after the rest of its queue.
"""

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import Answer
from carrel_scheduler.core.cycle.offers import FeasibleRows, Offers
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.cycle.starvation import is_held_back
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.work.jobs import Job


def allocate(cycle: Cycle) -> None:
    """Start what fits now, reserve places for what fits soon."""
    feasible = FeasibleRows(cycle)
    singles = [
        job
        for uid, job in sorted(cycle.state.partial.items())
        if not _waits_for_its_own(cycle, job)
        and (uid in cycle.moves.reserved or not is_held_back(cycle, job))
    ]
    offers = Offers(cycle, feasible.rows(), singles, feasible)
    offers.run(lambda job, step: _attempt(cycle, feasible, job, step))


def _attempt(cycle: Cycle, feasible: FeasibleRows, job: Job, step: tuple[int, ...]) -> Answer:
    if job.spec.uid in cycle.moves.reserved:
        return _start_elsewhere(cycle, job)
    if cycle.over_limit(job, step) is not None:
        return Answer.NO
    if feasible.now(job, step) and place(cycle, job, step, soon=False):
        return Answer.SERVED
    if feasible.soon(job) and place(cycle, job, step, soon=True):
        return Answer.SERVED
    return Answer.NO


def _start_elsewhere(cycle: Cycle, job: Job) -> Answer:
    places = cycle.moves.reserved[job.spec.uid]
    held = sorted(places)
    if any(index in job.rows for index in held):
        return Answer.NOT_THIS  # it moves, and has not ended yet
    fixed = cycle.is_fixed(job)
    mark = cycle.moves.mark()
    for index in held:
        cycle.moves.unreserve(job, index, fixed=fixed)
    if place(cycle, job, held, soon=False) and cycle.works(job, held):
        return Answer.SERVED
    cycle.moves.rollback(mark)
    return Answer.NOT_THIS


def _waits_for_its_own(cycle: Cycle, job: Job) -> bool:
    """Whether a single task has a reservation and finds no capacity elsewhere, known at once."""
    places = cycle.moves.reserved.get(job.spec.uid)
    if places is None or job.shape.tasks > 1 or cycle.state.capacity.total(job.shape.cls) > 0:
        return False
    return not _has_own(cycle, places[0])


def _has_own(cycle: Cycle, held: Footprint) -> bool:
    """Whether a task may fit on the node of its reservation, by what is free there."""
    free, node = cycle.free_capacity.free, held.node
    if any(amount > free.host.item(row, node) for row, amount in enumerate(held.host) if amount):
        return False
    there = free.devices[:, node].tolist()
    suited = sum(milli >= held.share for milli in there)
    return bool(suited >= len(held.devices))
