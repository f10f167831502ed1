"""Quotas of queues in groups of nodes, with what queues hold there in one cycle.

For each group in which some queue has a quota there is a ``QueueUsage`` of the group's GPUs alone,
so the rules of reclaim can be asked of one group as of the whole cluster. What may not be stopped
takes nothing that is guaranteed to others: of a group it gets its queue's guarantee, and what is
guaranteed to nobody.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.queues.rules import NO_BOUND, RuleTable
from carrel_scheduler.core.queues.usage import QueueUsage
from carrel_scheduler.core.resources import MILLI, NONE, Triple

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns


class GroupQuotas:
    """Quotas in groups of nodes. Groups have the numbers that ``GroupUsage`` gives them.

    Attributes:
        of_group: number of a group -> what queues hold there, with their quotas; only of groups
            in which some queue has one.
    """

    def __init__(
        self, state: "Columns", names: Sequence[str], group: Counts, held: tuple[Counts, Counts]
    ) -> None:
        """Copy the state at the beginning of a cycle; ``add`` applies its changes.

        Args:
            state: the queues and nodes.
            names: of the groups.
            group: (N,) number of the group of each node.
            held: (Q, G) what queues hold in each group, in all and by non-preemptible work.
        """
        self._table: RuleTable = state.queues.table
        guaranteed = [self._table.guaranteed_in(name) for name in names]
        self.of_group: dict[int, QueueUsage] = {
            number: QueueUsage.of_group(self._table, quotas, held[0][:, number], held[1][:, number])
            for number, quotas in enumerate(guaranteed)
            if any(quotas)
        }
        self._began = {g: [row[0] for row in usage.used] for g, usage in self.of_group.items()}
        gpus = state.nodes.usable.sum(axis=0) * MILLI + state.nodes.counted
        self._there: list[int] = [int(gpus[group == number].sum()) for number in range(len(names))]

    def add(self, leaf: int, group: int, gpu: int, *, fixed: bool) -> None:
        """Count GPUs in a group in for a queue and all above it, or out where negative."""
        usage = self.of_group.get(group)
        if usage is not None:
            amounts: Triple = (gpu, 0, 0)
            usage.add(leaf, amounts, amounts if fixed else NONE)

    def bound_by(self, leaf: int) -> tuple[int, ...]:
        """Groups in which something is guaranteed to a queue or to one above it."""
        path = self._table.path[leaf]
        return tuple(
            group
            for group, usage in self.of_group.items()
            if any(usage.quota[slot][0] for slot in path)
        )

    def covered(self, leaf: int, group: int) -> bool:
        """Whether a queue, or one above, began the cycle within its quota in a group."""
        quota, began = self.of_group[group].quota, self._began[group]
        return any(
            began[slot] <= quota[slot][0] for slot in self._table.path[leaf] if quota[slot][0]
        )

    def headroom(self, group: int) -> Counts:
        """(Q,) how much more queues may hold within a quota there, their own or one above."""
        usage = self.of_group[group]
        left = np.array([row[0] for row in usage.used], np.int64)
        left -= np.array([row[0] for row in usage.quota], np.int64)
        return -self._table.tree.least_on_paths(left)

    def room_for_fixed(self, leaf: int, groups: int) -> Counts:
        """(G,) how much more non-preemptible work of a queue may hold in each group."""
        room = np.full(groups, NO_BOUND, np.int64)
        for group, usage in self.of_group.items():
            room[group] = self._room_in(usage, self._there[group], leaf)
        return room

    def _room_in(self, usage: QueueUsage, there: int, leaf: int) -> int:
        """Level by level: what a queue has left of its guarantee, and what nobody is guaranteed."""
        siblings = self._table.tops
        room = there - sum(usage.fixed[slot][0] for slot in siblings)
        for slot in reversed(self._table.path[leaf]):
            unmet = {one: max(0, usage.quota[one][0] - usage.fixed[one][0]) for one in siblings}
            room = min(room, unmet[slot] + max(0, room - sum(unmet.values())))
            siblings = self._table.children[slot]
        return room
