"""Promises kept: a workload starts on the places held for it once all of them are free.

Room held for a workload is nobody else's, so the order among promises does not matter. A promise
that cannot be kept any more (a device broke, a node left service, a limit was lowered) ends, and
its workload looks for room like any other in the same cycle.
"""

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.workloads import Record


def run(cycle: Cycle) -> None:
    """Bind, keep or end every promise."""
    for queue in cycle.queues.values():
        for record in queue:
            if record.promise:
                _settle(cycle, record)


def _settle(cycle: Cycle, record: Record) -> None:
    places = cycle.lift(record)
    if cycle.barred(record) or not cycle.room.has_soon(places):
        cycle.end_promise(record)
    elif cycle.room.has_now(places):
        cycle.bind(record, places)
    else:
        cycle.hold(record, places)
