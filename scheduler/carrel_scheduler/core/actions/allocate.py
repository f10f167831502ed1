"""Allocate: waiting work takes room that is free, in the order of service.

A workload that does not fit now but does once running stops have finished gets those places held.
What fits nowhere blocks nobody: later workloads are still tried (backfill). A workload whose room
is on its way starts elsewhere at once when other room has become free.
"""

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.order import Service
from carrel_scheduler.core.placement import place
from carrel_scheduler.core.workloads import Record, Shape


def run(cycle: Cycle) -> None:
    """Bind what fits now, hold what fits soon."""
    waiting = {
        slot: [record for record in queue if record.spec.uid not in cycle.bound]
        for slot, queue in cycle.queues.items()
    }
    full: set[Shape] = set()
    waiting = {slot: queue for slot, queue in waiting.items() if queue}
    Service(cycle.standings, waiting).run(lambda record: _attempt(cycle, record, full))


def _attempt(cycle: Cycle, record: Record, full: set[Shape]) -> bool:
    if record.spec.uid in cycle.held:
        return _start_elsewhere(cycle, record)
    if record.shape in full or cycle.barred(record):
        return False
    eligible = cycle.eligible(record.spec.nodes)
    now = place(cycle.room, record.shape, eligible, soon=False)
    if now is not None:
        cycle.bind(record, now)
        return True
    soon = place(cycle.room, record.shape, eligible, soon=True)
    if soon is not None:
        cycle.hold(record, soon)
        return True
    full.add(record.shape)
    return False


def _start_elsewhere(cycle: Cycle, record: Record) -> bool:
    held = cycle.lift(record)
    now = place(cycle.room, record.shape, cycle.eligible(record.spec.nodes), soon=False)
    if now is None:
        cycle.hold(record, held)
        return True
    cycle.bind(record, now)
    return True
