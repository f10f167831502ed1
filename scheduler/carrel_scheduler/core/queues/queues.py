"""Queues as columns: their tree, their rules, and sums that every event keeps up to date.

The tree has any depth (cluster, departments, projects, users' parts); only leaves hold workloads.
Each sum is a (Q, 3) int64 array over (GPU thousandths, millicores, MiB), and what is added to a
leaf is added to every queue above it, so a queue's row always includes its descendants. ``used``
is what quotas and limits are measured against; what is being released still holds its allocation,
but no longer counts for its queue.
"""

import heapq
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import QueueSet, UsageSeen
from carrel_scheduler.core.queues.rules import (
    RuleTable,
    check_parent,
    check_rules,
    check_usage,
    larger,
    open_ended,
    path_of,
)
from carrel_scheduler.core.resources import NONE, Triple

Counts = npt.NDArray[np.int64]


class Sum(IntEnum):
    """The sums that are kept for every queue."""

    USED = 0
    """Placed and not terminating."""
    FIXED = 1
    """The part of ``USED`` that is non-preemptible."""
    RELEASING = 2
    """Told to stop, still there."""
    RESERVED = 3
    """Reserved for pending work."""
    RESERVED_FIXED = 4
    """The part of ``RESERVED`` that is for non-preemptible work."""
    WAITING = 5
    """Asked for by pending tasks, placeable or not."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most a queue may hold under the present rules; ``NO_BOUND`` where open.

    Rules bind what starts after they are set: where a queue held more at that moment, that is the
    bound until its rules are set again.
    """

    fixed: Triple
    all: Triple


class QueueColumns:
    """Rules and sums of all queues.

    Attributes:
        slots: name -> slot.
        rules: slot -> the last ``QueueSet``, ``None`` when unused.
        parent: slot -> the slot above, -1 at the top.
        usage: (Q, 3) int64, past use in millionths of the cluster (``UsageSeen``).
        changes: grows whenever an allocation or a reservation begins or ends.
        changed_at: slot of a leaf -> ``changes`` after its own last one.
    """

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.rules: list[QueueSet | None] = []
        self.parent: list[int] = []
        self.usage: Counts = np.zeros((0, 3), np.int64)
        self.changes = 0
        self.changed_at: dict[int, int] = {}
        self._ceilings: list[Ceiling] = []
        self._paths: list[tuple[int, ...]] = []
        self._unused: list[int] = []
        self._table: RuleTable | None = None
        self._keep(np.zeros((len(Sum), 0, 3), np.int64))

    def _keep(self, sums: Counts) -> None:
        """Use these sums; single amounts are changed through the flat view, many times faster."""
        self._sums = sums
        self._flat: memoryview[int] = sums.reshape(-1).data

    def copy(self) -> "QueueColumns":
        """An independent copy."""
        twin = QueueColumns()
        twin.slots, twin.rules, twin.parent = dict(self.slots), list(self.rules), list(self.parent)
        twin.usage = self.usage.copy()
        twin.changes, twin.changed_at = self.changes, dict(self.changed_at)
        twin._ceilings, twin._paths = list(self._ceilings), list(self._paths)
        twin._unused, twin._table = list(self._unused), self._table
        twin._keep(self._sums.copy())
        return twin

    def _sum(self, which: Sum) -> Counts:
        rows: Counts = self._sums[which]
        return rows

    @property
    def used(self) -> Counts:
        """Placed and not terminating, (Q, 3)."""
        return self._sum(Sum.USED)

    @property
    def fixed(self) -> Counts:
        """The non-preemptible part of ``used``, (Q, 3)."""
        return self._sum(Sum.FIXED)

    @property
    def releasing(self) -> Counts:
        """Amounts of terminating tasks, (Q, 3)."""
        return self._sum(Sum.RELEASING)

    @property
    def reserved(self) -> Counts:
        """Held for waiting work, (Q, 3)."""
        return self._sum(Sum.RESERVED)

    @property
    def reserved_fixed(self) -> Counts:
        """Held for waiting non-preemptible work, (Q, 3)."""
        return self._sum(Sum.RESERVED_FIXED)

    @property
    def waiting(self) -> Counts:
        """Amounts of pending tasks, (Q, 3)."""
        return self._sum(Sum.WAITING)

    @property
    def table(self) -> RuleTable:
        """The rules laid out for reading; a new object after each change of a rule."""
        if self._table is None:
            self._table = RuleTable(self.rules, self.parent)
        return self._table

    def slot(self, name: str, field: str = "queue") -> int:
        """The slot of a queue; ``InvalidEvent`` about ``field`` when there is none of that name."""
        slot = self.slots.get(name)
        if slot is None:
            raise InvalidEvent("unknown_queue", field, name, "the name of a known queue")
        return slot

    def rule(self, slot: int) -> QueueSet:
        """The rules of the queue in this slot; ``KeyError`` when it is unused."""
        rule = self.rules[slot]
        if rule is None:
            raise KeyError(slot)
        return rule

    def children(self, slot: int) -> tuple[int, ...]:
        """The queues right below, older first."""
        return self.table.children[slot]

    def is_leaf(self, slot: int) -> bool:
        """Whether the queue has no child queue."""
        return not self.table.children[slot]

    def path(self, slot: int) -> tuple[int, ...]:
        """The slots from this queue up to the top."""
        return self._paths[slot]

    def ceiling(self, slot: int) -> Ceiling:
        """The most this queue may hold."""
        return self._ceilings[slot]

    def add(self, which: Sum, leaf: int, amounts: Triple, sign: int = 1) -> None:
        """Add amounts to a sum of a leaf and of all queues above it."""
        gpu, cpu, memory = sign * amounts[0], sign * amounts[1], sign * amounts[2]
        if which is not Sum.WAITING:
            self.changes += 1
            self.changed_at[leaf] = self.changes
        flat, first = self._flat, which * len(self.rules)
        for slot in self._paths[leaf]:
            at = 3 * (first + slot)
            flat[at] += gpu
            flat[at + 1] += cpu
            flat[at + 2] += memory

    def holds_work(self, slot: int) -> bool:
        """Whether the queue has running or pending work."""
        return bool(self._sums[:, slot].any())

    def set_usage(self, event: UsageSeen) -> None:
        """Note the past use of a queue."""
        slot = self.slot(event.queue)
        check_usage(event)
        self.usage[slot] = event.part

    def set(self, event: QueueSet) -> None:
        """Add a queue, change its rules, or move it below another queue.

        Raises:
            InvalidEvent: the state is as before.
        """
        check_rules(event)
        parent = self._checked_parent(event)
        slot = self.slots.get(event.name)
        if slot is None:
            slot = self._new_slot()
            self.slots[event.name] = slot
        if self.rules[slot] != event:
            self._table = None
        self.rules[slot] = event
        self._move(slot, parent)
        for above in self._paths[slot]:
            if above == slot or self._beyond_ceiling(above):
                self._set_ceiling(above)

    def drop(self, name: str) -> None:
        """Remove a queue that has neither children nor workloads."""
        slot = self.slot(name, "name")
        if not self.is_leaf(slot):
            raise InvalidEvent("queue_in_use", "name", name, "a queue without queues below it")
        if self.holds_work(slot):
            raise InvalidEvent("queue_in_use", "name", name, "a queue without workloads")
        del self.slots[name]
        self.rules[slot], self.parent[slot], self._paths[slot] = None, -1, ()
        self.usage[slot] = 0
        self._table = None
        heapq.heappush(self._unused, slot)

    def _checked_parent(self, event: QueueSet) -> int:
        if not event.parent:
            return -1
        parent = self.slots.get(event.parent)
        check_parent(
            event,
            known=parent is not None,
            below=parent is not None and self.slots.get(event.name) in self._paths[parent],
        )
        return -1 if parent is None else parent

    def _new_slot(self) -> int:
        if self._unused:
            return heapq.heappop(self._unused)
        slot = len(self.rules)
        self.rules.append(None)
        self.parent.append(-1)
        self._paths.append(())
        self._ceilings.append(Ceiling(NONE, NONE))
        self.usage = np.concatenate([self.usage, np.zeros((1, 3), np.int64)])
        self._keep(np.concatenate([self._sums, np.zeros((len(Sum), 1, 3), np.int64)], axis=1))
        return slot

    def _move(self, slot: int, parent: int) -> None:
        """Move a queue below ``parent``, with all its amounts."""
        if self._paths[slot] and self.parent[slot] == parent:
            return
        held = self._sums[:, slot].copy()
        for above in self._paths[slot][1:]:
            self._sums[:, above] -= held
        self.parent[slot] = parent
        for other, rule in enumerate(self.rules):
            if rule is not None and (other == slot or slot in self._paths[other]):
                self._paths[other] = path_of(other, self.parent)
        for above in self._paths[slot][1:]:
            self._sums[:, above] += held

    def _held(self, slot: int) -> Ceiling:
        """The amounts that the queue holds and has reserved, as an upper bound."""
        fixed = (self.fixed[slot] + self.reserved_fixed[slot]).tolist()
        used = (self.used[slot] + self.reserved[slot]).tolist()
        return Ceiling(tuple(fixed), tuple(used))

    def _beyond_ceiling(self, slot: int) -> bool:
        held, ceiling = self._held(slot), self._ceilings[slot]
        return (
            larger(held.fixed, ceiling.fixed) != ceiling.fixed
            or larger(held.all, ceiling.all) != ceiling.all
        )

    def _set_ceiling(self, slot: int) -> None:
        held, rule = self._held(slot), self.rule(slot)
        self._ceilings[slot] = Ceiling(
            larger(open_ended(rule.quota), held.fixed), larger(open_ended(rule.limit), held.all)
        )
