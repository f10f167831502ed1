"""Start reserved workloads elsewhere, if capacity other than their reservation has become free.

Places on which others still run are held when nothing else was to be had (``reserve``). Soon
something may be: work has ended elsewhere, so that a few moves make room, or rights have come back.
What leads nowhere leaves the places held.
"""

from collections.abc import Iterable

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import Answer
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.preemption.consolidate import CONSOLIDATE_FOR_ENTITLED
from carrel_scheduler.core.preemption.preempt_and_reclaim import PREEMPT_AND_RECLAIM
from carrel_scheduler.core.preemption.rules import PREEMPT, RECLAIM
from carrel_scheduler.core.work.jobs import Job


def run(cycle: Cycle) -> None:
    """Try for each of them."""
    patience = cycle.settings.patience_s
    if patience < 0 or not cycle.has_victims:
        return
    for uid in sorted(cycle.state.reserved):
        job = cycle.state.reserved[uid]
        held = cycle.moves.reserved.get(uid, {})
        late = held and not job.rows and cycle.waited_s(job) > patience
        if late and not _is_coming(cycle, held.values()):
            _try(cycle, job)


def _try(cycle: Cycle, job: Job) -> None:
    moves = cycle.moves
    mark, fixed = moves.mark(), cycle.is_fixed(job)
    step = tuple(sorted(moves.reserved[job.spec.uid]))
    for index in step:
        moves.unreserve(job, index, fixed=fixed)
    for rule in (CONSOLIDATE_FOR_ENTITLED, RECLAIM, PREEMPT, PREEMPT_AND_RECLAIM):
        if rule.attempt(cycle, job, step) is Answer.SERVED:
            return
    moves.rollback(mark)


def _is_coming(cycle: Cycle, places: Iterable[Footprint]) -> bool:
    """Whether these places are free or being released."""
    free, releasing = cycle.free_capacity.free, cycle.free_capacity.releasing
    for place in places:
        for device in place.devices:
            there = free.devices.item(device, place.node) + releasing.devices.item(
                device, place.node
            )
            if there < place.share:
                return False
        for row, amount in enumerate(place.host):
            if amount > free.host.item(row, place.node) + releasing.host.item(row, place.node):
                return False
    return True
