"""One decision: the state and the time in, a plan out; nothing outside changes.

The order of the actions: what was promised, what is free, what can be made by moving work that
loses its place nowhere, what other queues borrowed, what is of lower priority in the own queue.
"""

from collections.abc import Callable, Sequence

from carrel_scheduler.decision.actions import (
    allocate,
    consolidate,
    preempt,
    promises,
    reclaim,
    stale,
)
from carrel_scheduler.decision.columns import Columns
from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.plan import Plan

Action = Callable[[Cycle], None]

ACTIONS: Sequence[Action] = (
    promises.run,
    allocate.run,
    consolidate.run,
    reclaim.run,
    preempt.run,
    stale.run,
)


def decide(state: Columns, now: float, actions: Sequence[Action] = ACTIONS) -> Plan:
    """What to do now."""
    cycle = Cycle(state, now)
    for action in actions:
        action(cycle)
    return Plan(cycle)
