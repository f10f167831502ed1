"""Queue usage in one cycle: what each queue holds, its fair share, and its limits.

``used`` includes reserved capacity, so a queue cannot use the same quota twice while its
victims terminate. Fair shares are computed once per cycle; moves change only ``used``, of the
leaf and of all queues above. ``over_limit`` finds the first limit or quota that work would break;
a resource that it does not ask for never counts. ``QueueUsageColumns`` gives the same as arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.queues.fair_share import Division
from carrel_scheduler.core.queues.queues import QueueColumns
from carrel_scheduler.core.queues.rules import NO_BOUND, RuleTable
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import NONE, Triple

Rows = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class LimitViolation:
    """A bound that the workload would exceed.

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
        """Whether the request alone exceeds the bound."""
        return self.asked > self.bound


def find_violation(
    table: RuleTable,
    leaf: int,
    asked: tuple[Sequence[int], Sequence[int]],
    held: tuple[Rows, Rows],
) -> LimitViolation | None:
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
            return LimitViolation(token, table.names[slot], slot, resource, has, amount, bound)
    return None


def permanent_violation(
    table: RuleTable, leaf: int, demand: Sequence[int], fixed_demand: Sequence[int] = NONE
) -> LimitViolation | None:
    """The first bound that the work would break even if nobody held anything, or ``None``."""
    nobody = (NONE,) * len(table.names)
    return find_violation(table, leaf, (demand, fixed_demand), (nobody, nobody))


SCALE: Final = 1_000_000_000
RESOURCE_NAMES: Final = ("gpu", "cpu", "memory")


class Shares(Protocol):
    """An amount of every resource by slot of a queue."""

    def __getitem__(self, slot: int, /) -> Triple:
        """The value of one queue."""

    def __len__(self) -> int:
        """The number of slots."""


class Watched:
    """Shares that record which of them are read, because a result depends only on those."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._asked: set[int] = set()

    def __getitem__(self, slot: int, /) -> Triple:
        """The share of a queue."""
        self._asked.add(slot)
        return self._shares[slot]

    def __len__(self) -> int:
        """The number of slots."""
        return len(self._shares)

    def asked(self) -> tuple[tuple[int, Triple], ...]:
        """The slots that were read, with their values."""
        return tuple((slot, self._shares[slot]) for slot in sorted(self._asked))


class QueueUsage:
    """The use of all queues, by slot. Open bounds are ``NO_BOUND``.

    Attributes:
        table: the rules; ``quota`` and ``cap`` are its lists.
        total: the cluster's amounts.
        used, fixed: held or reserved, by all work and by non-preemptible work.
        fair: its share of the cluster in this cycle.
        allocatable: what it may keep when others reclaim theirs (see ``Division``).
        measure: what dominant shares are parts of.
        known: places in the order of service, which ``order`` keeps from cycle to cycle.
        touched: queues of which ``used`` or ``fixed`` changed since it was last emptied.
    """

    __slots__ = (
        "allocatable", "cap", "fair", "fixed", "known", "measure", "quota", "table", "total",
        "touched", "used",
    )  # fmt: skip

    def __init__(self, columns: QueueColumns, division: Division, total: Triple) -> None:
        """``total`` is divided among the queues; the division is brought up to date."""
        division.update(columns, total)
        self.table: RuleTable = columns.table
        self.total = total
        self.touched: set[int] = set()
        self.quota, self.cap = self.table.quota, self.table.cap
        self.used: list[list[int]] = (columns.used + columns.reserved).tolist()
        self.fixed: list[list[int]] = (columns.fixed + columns.reserved_fixed).tolist()
        self.fair: Shares = list(division.fair)
        self.allocatable = list(division.allocatable)
        self.measure = list(division.measure)
        self.known = division.known

    @classmethod
    def of_group(
        cls, table: RuleTable, guaranteed: Sequence[int], used: Counts, fixed: Counts
    ) -> "QueueUsage":
        """The usage of queues in one group of nodes, as if the cluster had no other GPUs.

        The quota is what is guaranteed there. There is no share beyond it: what is neither
        guaranteed nor beyond a guarantee is nobody's to claim by group.

        Args:
            table: the rules.
            guaranteed: by slot, thousandths of GPUs.
            used: (Q,) what each queue holds there in all, in thousandths of GPUs.
            fixed: (Q,) the non-preemptible part of it.
        """
        usage = object.__new__(cls)
        everything = [(NO_BOUND, NO_BOUND, NO_BOUND)] * len(guaranteed)
        usage.table, usage.total, usage.touched, usage.known = table, NONE, set(), {}
        usage.quota = [(gpu, NO_BOUND, NO_BOUND) for gpu in guaranteed]
        usage.used = [[gpu, 0, 0] for gpu in used.tolist()]
        usage.fixed = [[gpu, 0, 0] for gpu in fixed.tolist()]
        usage.cap = usage.allocatable = usage.measure = everything
        usage.fair = everything
        return usage

    def copy(self) -> "QueueUsage":
        """An independent copy, for trial moves."""
        twin = object.__new__(QueueUsage)
        for name in QueueUsage.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.touched = set(self.touched)
        twin.used, twin.fixed = [row[:] for row in self.used], [row[:] for row in self.fixed]
        return twin

    def without(self, leaf: int, amounts: Sequence[int]) -> "QueueUsage":
        """A view in which a leaf and all queues above hold so much less, not to be changed."""
        twin = object.__new__(QueueUsage)
        for name in QueueUsage.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.touched, twin.used = set(), self.used[:]
        for slot in self.table.path[leaf]:
            twin.used[slot] = [
                held - gone for held, gone in zip(self.used[slot], amounts, strict=True)
            ]
        return twin

    def add(
        self, leaf: int, demand: Sequence[int], fixed_demand: Sequence[int] = NONE, sign: int = 1
    ) -> None:
        """Count work of a leaf in, or out with ``sign`` -1, up to the top.

        Args:
            leaf: the slot of its queue.
            demand: all that it holds.
            fixed_demand: the non-preemptible part of it.
            sign: 1 or -1; the same call with the other sign undoes it.
        """
        gpu, cpu, memory = sign * demand[0], sign * demand[1], sign * demand[2]
        path = self.table.path[leaf]
        self.touched.update(path)
        for slot in path:
            row = self.used[slot]
            row[0] += gpu
            row[1] += cpu
            row[2] += memory
        if any(fixed_demand):
            gpu, cpu, memory = (sign * amount for amount in fixed_demand)
            for slot in path:
                row = self.fixed[slot]
                row[0] += gpu
                row[1] += cpu
                row[2] += memory

    def over_limit(
        self, leaf: int, demand: Sequence[int], fixed_demand: Sequence[int] = NONE
    ) -> LimitViolation | None:
        """The first rule that keeps work from starting, from its leaf up, or ``None``."""
        return find_violation(self.table, leaf, (demand, fixed_demand), self.held)

    @property
    def held(self) -> tuple[list[list[int]], list[list[int]]]:
        """``used`` and ``fixed``."""
        return self.used, self.fixed

    def within(self, bound: Sequence[int], slot: int, demand: Sequence[int]) -> bool:
        """Whether a queue's amounts plus ``demand`` are within ``bound`` in every resource."""
        used = self.used[slot]
        return (
            used[0] + demand[0] <= bound[0]
            and used[1] + demand[1] <= bound[1]
            and used[2] + demand[2] <= bound[2]
        )

    def share(self, slot: int, demand: Sequence[int] = NONE) -> int:
        """Dominant share of a queue with ``demand``, in billionths (see ``dominant_share``)."""
        used = self.used[slot]
        amounts = (used[0] + demand[0], used[1] + demand[1], used[2] + demand[2])
        return dominant_share(amounts, self.measure[slot])


def dominant_share(amounts: Sequence[int], measure: Sequence[int]) -> int:
    """The largest part that ``amounts`` are of ``measure``, in billionths.

    What is held of something that a queue has no share of counts a thousandfold.
    """
    gpu, cpu, memory = measure
    held_gpu, held_cpu, held_memory = amounts
    largest = held_gpu * SCALE // gpu if gpu else held_gpu * SCALE * 1000
    part = held_cpu * SCALE // cpu if cpu else held_cpu * SCALE * 1000
    if part > largest:
        largest = part
    part = held_memory * SCALE // memory if memory else held_memory * SCALE * 1000
    return max(largest, part)


class QueueUsageColumns:
    """(Q, 3) columns of one cycle's queue usage. Do not change them."""

    def __init__(self, queue_usage: QueueUsage, queues: QueueColumns) -> None:
        """The columns of ``queue_usage``, before any move."""
        self._usage = queue_usage
        self._used = queues.used + queues.reserved
        self._fixed = queues.fixed + queues.reserved_fixed
        queue_usage.touched.clear()

    @cached_property
    def fair(self) -> Counts:
        """Fair shares."""
        fair = self._usage.fair
        return _column([fair[slot] for slot in range(len(fair))])

    @cached_property
    def kept(self) -> Counts:
        """The amounts that queues keep against a preemptor within its quota."""
        return np.minimum(_column(self._usage.allocatable), self._usage.table.quotas)

    @property
    def used(self) -> Counts:
        """Held or reserved, by all work."""
        self._follow()
        return self._used

    @property
    def fixed(self) -> Counts:
        """Held or reserved, by non-preemptible work."""
        self._follow()
        return self._fixed

    def left(self, *, fixed: bool = False, for_ever: bool = False) -> Counts:
        """The amounts that each queue may still hold, by its own bounds and those above it.

        Args:
            fixed: of what may not be stopped.
            for_ever: if nobody held anything.
        """
        table = self._usage.table
        bounds, held = (table.quotas, self.fixed) if fixed else (table.caps, self.used)
        return table.tree.least_on_paths(np.maximum(bounds if for_ever else bounds - held, 0))

    def _follow(self) -> None:
        queue_usage = self._usage
        if queue_usage.touched:
            slots = list(queue_usage.touched)
            queue_usage.touched.clear()
            self._used[slots] = [queue_usage.used[slot] for slot in slots]
            self._fixed[slots] = [queue_usage.fixed[slot] for slot in slots]


def _column(rows: "list[list[int]] | list[tuple[int, int, int]]") -> Counts:
    return np.array(rows, np.int64).reshape(-1, 3)
