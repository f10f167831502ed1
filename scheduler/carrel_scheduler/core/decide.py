"""One cycle: from a state to a plan, changing nothing."""

from collections.abc import Callable, Sequence

from carrel_scheduler.core.actions import allocate, preempt, promises, reclaim
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.explain import Explainer
from carrel_scheduler.core.order import service_order
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State

Action = Callable[[Cycle], None]
ACTIONS: tuple[Action, ...] = (promises.run, allocate.run, reclaim.run, preempt.run)


def decide(state: State, now: float) -> Plan:
    """What is to be done now. The same state and ``now`` give the same plan.

    Whoever carries it out applies ``TaskPlaced`` for each binding, ``TaskReleasing`` for each task
    of an evicted workload, and ``RoomPromised`` for each nomination, in this order. A nomination
    without places ends a promise; all ends come first, so that the room can be promised anew.

    Args:
        state: not changed, and not kept.
        now: epoch seconds; only the work that victims would lose is measured with it.
    """
    return decide_with(state, now, ACTIONS)


def decide_with(state: State, now: float, actions: Sequence[Action]) -> Plan:
    """A cycle of some actions only, for studies of one of them."""
    cycle = Cycle(state, now)
    queue = service_order(cycle.standings, cycle.queues)
    for action in actions:
        action(cycle)
    return Plan(
        bindings=tuple(cycle.bindings),
        evictions=tuple(cycle.evictions),
        nominations=cycle.changed_promises(),
        reasons=Explainer(cycle).reasons(),
        queue=queue,
        fair_share={standing.rule.name: standing.fair[0] for standing in cycle.in_name_order()},
    )
