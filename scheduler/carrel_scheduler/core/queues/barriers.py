"""What stands in a workload's way before any node is looked at: limits and quotas, at every level.

A resource that the workload does not ask for never stands in its way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from carrel_scheduler.core.queues.rules import RuleTable
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import NONE

Rows = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A bound that the workload would break.

    Attributes:
        token: which rule.
        queue: whose rule, by name; ``slot``: its slot.
        resource: index of the resource.
        held: what counts against the bound already.
        asked: what the workload asks for in all.
        bound: the quota or limit.
    """

    token: Token
    queue: str
    slot: int
    resource: int
    held: int
    asked: int
    bound: int

    @property
    def for_ever(self) -> bool:
        """Whether it stands even when the queue holds nothing else."""
        return self.asked > self.bound


def find_barrier(
    table: RuleTable,
    leaf: int,
    asked: tuple[Sequence[int], Sequence[int]],
    held: tuple[Rows, Rows],
) -> Barrier | None:
    """The first bound that a leaf's work would break, the nearest queue's first, or ``None``.

    Args:
        table: the rules.
        leaf: the slot of its queue.
        asked: what it asks for in all, and the non-preemptible part of it.
        held: what each queue holds by slot, in all and by non-preemptible work.
    """
    demand, fixed_demand = asked
    used, fixed = held
    for slot, resource, bound, token in table.bounds[leaf]:
        if token is Token.NON_PREEMPTIBLE_BEYOND_QUOTA:
            amount, has = fixed_demand[resource], fixed[slot][resource]
        else:
            amount, has = demand[resource], used[slot][resource]
        if amount and has + amount > bound:
            return Barrier(token, table.names[slot], slot, resource, has, amount, bound)
    return None


def lasting_barrier(
    table: RuleTable, leaf: int, demand: Sequence[int], fixed_demand: Sequence[int] = NONE
) -> Barrier | None:
    """The first bound that the work would break even if nobody held anything, or ``None``."""
    nobody = (NONE,) * len(table.names)
    return find_barrier(table, leaf, (demand, fixed_demand), (nobody, nobody))
