"""Headroom of queues for which nodes are requested.

Nodes that are not there yet are asked for within deserved quotas only: what goes beyond uses what
is left over, and adds nothing. Work that nodes are asked for already counts as held.
"""

from collections.abc import Sequence

from carrel_scheduler.core.queues.queues import QueueColumns
from carrel_scheduler.core.queues.rules import RESOURCES
from carrel_scheduler.core.queues.usage import LimitViolation, find_violation
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import NONE


class Headroom:
    """Limits and quotas of all queues, less what is held, reserved, and ``add``-ed here.

    Args:
        queues: their rules and sums.
    """

    def __init__(self, queues: QueueColumns) -> None:
        self._table = queues.table
        self._used: list[list[int]] = (queues.used + queues.reserved).tolist()
        self._fixed: list[list[int]] = (queues.fixed + queues.reserved_fixed).tolist()

    def is_of(self, queues: QueueColumns) -> bool:
        """Whether the queues' rules are unchanged."""
        return self._table is queues.table

    def violation(
        self, leaf: int, demand: Sequence[int], fixed_demand: Sequence[int] = NONE
    ) -> LimitViolation | None:
        """The first limit or quota, from the leaf up, that work would go beyond, or ``None``.

        Args:
            leaf: the slot of its queue.
            demand: all that it asks for.
            fixed_demand: the non-preemptible part of it.
        """
        found = find_violation(self._table, leaf, (demand, fixed_demand), (self._used, self._fixed))
        if found is not None:
            return found
        for slot in self._table.path[leaf]:
            quota, used = self._table.quota[slot], self._used[slot]
            for resource in RESOURCES:
                asked, bound = demand[resource], quota[resource]
                if asked and used[resource] + asked > bound:
                    name, held = self._table.names[slot], used[resource]
                    return LimitViolation(
                        Token.QUOTA_USED, name, slot, resource, held, asked, bound
                    )
        return None

    def add(self, leaf: int, demand: Sequence[int], fixed_demand: Sequence[int] = NONE) -> None:
        """Count work as held, up to the top."""
        for slot in self._table.path[leaf]:
            for resource in RESOURCES:
                self._used[slot][resource] += demand[resource]
                self._fixed[slot][resource] += fixed_demand[resource]
