"""The decision: from the state and the time to a plan; nothing outside changes.

The order of the actions: start on reservations that have become free; allocate free capacity; look
for other places for reservations that are still in use; move work for workloads within their fair
share; reclaim over-quota work of other queues, and in groups of nodes what is guaranteed there;
preempt lower priority of the own queue; reclaim and preempt together; move work for workloads over
quota. Then evict stale gangs, drain nodes, and reserve places for a workload that has waited too
long. Last, move one workload to nodes that it prefers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from carrel_scheduler.core.actions.allocate import allocate
from carrel_scheduler.core.actions.evictions import drain, evict_stale
from carrel_scheduler.core.actions.improve import improve
from carrel_scheduler.core.actions.reservations import replace_reserved, reserve, start_reserved
from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.preemption.consolidate import (
    CONSOLIDATE,
    asks_again,
    consolidate_for_entitled,
)
from carrel_scheduler.core.preemption.preempt_and_reclaim import PREEMPT_AND_RECLAIM
from carrel_scheduler.core.preemption.preemptors import combines, replaces
from carrel_scheduler.core.preemption.rules import PREEMPT, RECLAIM, RECLAIM_IN_GROUP

Action = Callable[[Cycle], None]


@dataclass(frozen=True, slots=True)
class NeededAction:
    """An action with what has to be so for it to have anything to do.

    Attributes:
        needed: asked when its turn comes.
        action: the action.
    """

    needed: Callable[[Cycle], object]
    action: Action

    def __call__(self, cycle: Cycle) -> None:
        """Run the action, if it is needed."""
        if self.needed(cycle):
            self.action(cycle)


def _evicts(cycle: Cycle) -> bool:
    """Whether somebody asks, and somebody may be evicted."""
    return cycle.asks and cycle.has_victims


def _moves(cycle: Cycle) -> bool:
    """Whether somebody may be moved for those who ask."""
    return cycle.settings.consolidate and _evicts(cycle)


ACTIONS: Sequence[NeededAction] = (
    NeededAction(lambda cycle: cycle.state.reserved, start_reserved),
    NeededAction(lambda cycle: cycle.asks, allocate),
    NeededAction(lambda cycle: cycle.state.reserved and replaces(cycle), replace_reserved),
    NeededAction(_moves, consolidate_for_entitled),
    NeededAction(_evicts, RECLAIM.run),
    NeededAction(lambda cycle: cycle.group_quotas and _evicts(cycle), RECLAIM_IN_GROUP.run),
    NeededAction(_evicts, PREEMPT.run),
    NeededAction(lambda cycle: _evicts(cycle) and combines(cycle), PREEMPT_AND_RECLAIM.run),
    NeededAction(lambda cycle: _moves(cycle) and asks_again(cycle), CONSOLIDATE.run),
    NeededAction(lambda cycle: cycle.state.stale, evict_stale),
    NeededAction(lambda cycle: cycle.state.nodes.draining, drain),
    NeededAction(lambda cycle: cycle.asks and len(cycle.late), reserve),
    NeededAction(lambda cycle: cycle.state.improvable, improve),
)


def decide(
    state: Columns, now: float, actions: Sequence[Action] = ACTIONS, *, asked: str | None = None
) -> Plan:
    """Decide the plan of one scheduling cycle.

    Args:
        state: the facts.
        now: epoch seconds.
        actions: in their order.
        asked: the uid of the workload that a question is about. In a large cluster, where
            preemptors are looked at in turns, it is its turn.
    """
    cycle = Cycle(state, now, asked)
    for action in actions:
        action(cycle)
    return Plan(cycle)
