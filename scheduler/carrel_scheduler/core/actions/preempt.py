"""Preempt: work takes the place of its own project's work of strictly lower priority.

Only preemptible work gives way, so interactive work that may not be stopped never does. What the
project holds in all does not grow, except into free room, so no other project is touched.
"""

from itertools import takewhile

import numpy as np

from carrel_scheduler.core.actions.bounds import Bounds
from carrel_scheduler.core.actions.pool import Pool
from carrel_scheduler.core.actions.search import clear_room
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.order import Service
from carrel_scheduler.core.placement import place
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.workloads import Record


def run(cycle: Cycle) -> None:
    """Evict inside projects, in the order of service."""
    pool, bounds = Pool(cycle), Bounds(cycle)
    waiting = {slot: queue for slot, queue in cycle.pending().items() if slot in pool.slots}
    service = Service(cycle.standings, waiting, cycle.changed)
    service.run(lambda record: _attempt(cycle, record, pool, bounds))


def find(cycle: Cycle, claimer: Record, pool: Pool, bounds: Bounds) -> tuple[Record, ...] | None:
    """Own work of lower priority that makes room, counted as evicted, or ``None``."""
    slot, priority = claimer.project, claimer.spec.priority
    tasks = cycle.state.tasks
    lower = (cycle.evictable == slot) & (tasks.priority < priority)
    if not lower.any():
        return None
    most = bounds.counts(claimer, (slot, priority), lower)
    if int(most.sum()) < claimer.shape[3]:
        return None
    useful = most > 0
    if cycle.barred(claimer):
        useful = np.ones_like(useful)
    there = pool.on(useful)[slot]
    lower_ones = takewhile(lambda victim: victim.spec.priority < priority, there)
    return clear_room(cycle, claimer, lower_ones)


def _attempt(cycle: Cycle, claimer: Record, pool: Pool, bounds: Bounds) -> bool:
    victims = find(cycle, claimer, pool, bounds)
    if victims is None:
        return False
    cycle.give_way(victims, claimer, Token.PREEMPTED)
    places = place(cycle.room, claimer.shape, cycle.eligible(claimer.spec.nodes), soon=True)
    if places is None:
        raise AssertionError(f"room cleared for {claimer.spec.uid} does not hold it")
    cycle.hold(claimer, places)
    return True
