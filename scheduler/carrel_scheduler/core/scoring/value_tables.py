"""Look-up tables for the value of node states (see ``value``): V as a sum of few table entries.

A state is described by K + 1 *counts* and K *amounts* for K distinct sizes of share: how many
shares of each size fit, how many devices are whole, and the thousandths on devices on which a
share of each size fits. With CPU in steps and nodes in *groups* that may hold the same requests,
V is one entry per count (``slots``) plus one factor per amount. Counts are multiplied by the
number of steps, so that adding CPU gives the place in the table.

``Single`` computes V of one node in plain numbers, which is faster for few nodes. Both add
entries from left to right (``cumsum`` here), so they agree to the last bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.devices.shares import share_table
from carrel_scheduler.core.layers import Bools, Counts, Milli
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI

CPU_STEP = 500
MOST_STEPS = 512
FEW = 32
"""The number of nodes up to which few large operations cost less than many small ones."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TypicalNeed:
    """A frequent need.

    Attributes:
        cpu_milli: rounded up to ``CPU_STEP``.
        whole: whole devices; 0 for a share.
        share: thousandths of one device; 1000 for whole ones.
        request: one with the same conditions on nodes.
        part: its part of the arrivals, all typical needs together 1.
    """

    cpu_milli: int
    whole: int
    share: int
    request: Request
    part: float

    @property
    def milli(self) -> int:
        """GPU thousandths in all."""
        return max(self.whole, 1) * self.share


class Sums(NamedTuple):
    """Sums of n nodes: (n, K + 1) counts times the number of steps, and (n, K) amounts."""

    counts: Counts
    amounts: Floats


class DeviceTables:
    """What a device adds to the sums of its node, by its free thousandths.

    Attributes:
        counts: (1001, K + 1) to the counts, multiplied by ``steps``.
        amounts: (1001, K) to the amounts.
    """

    def __init__(self, sizes: Sequence[int], steps: int) -> None:
        free = np.arange(MILLI + 1)
        fit = [share_table(size).astype(np.int64) for size in sizes]
        self.counts: Counts = np.column_stack([*fit, free == MILLI]) * steps
        usable = np.array([np.where(free >= size, free, 0) for size in sizes], np.float64)
        self.amounts: Floats = usable.reshape(len(sizes), MILLI + 1).T.copy()

    @cached_property
    def count_rows(self) -> list[list[int]]:
        """``counts`` as plain numbers."""
        rows: list[list[int]] = self.counts.tolist()
        return rows

    @cached_property
    def amount_rows(self) -> list[list[float]]:
        """``amounts`` as plain numbers."""
        rows: list[list[float]] = self.amounts.tolist()
        return rows


class NeedTables:
    """Tables that depend on the typical needs alone, not on their weights.

    Attributes:
        counts: (1001, K + 1) what a device with so many free thousandths adds to the counts,
            multiplied by ``steps``.
        amounts: (1001, K) what it adds to the amounts.
        step: millicores of one step of CPU; ``steps``: how many there are.
        held_by_kind: (whole devices, rows, steps of CPU) of a need -> how many of it a node holds,
            by count of its kind and CPU.
    """

    def __init__(
        self,
        needs: Sequence[TypicalNeed],
        devices: int,
        most_cpu: int,
        before: "NeedTables | None" = None,
    ) -> None:
        """``before``: earlier tables, of which the parts that would be the same are taken over."""
        self.needs = tuple(needs)
        self.sizes = sorted({need.share for need in needs if not need.whole})
        self.step = CPU_STEP * max(1, -(-most_cpu // (CPU_STEP * MOST_STEPS)))
        self.steps = most_cpu // self.step + 1
        self._steps_of = np.array([-(-need.cpu_milli // self.step) for need in needs], np.int64)
        self._kind = [
            len(self.sizes) if need.whole else self.sizes.index(need.share) for need in needs
        ]
        if before is not None and before.steps != self.steps:
            before = None
        self.of_devices: DeviceTables = (
            before.of_devices
            if before is not None and before.sizes == self.sizes
            else DeviceTables(self.sizes, self.steps)
        )
        self.counts, self.amounts = self.of_devices.counts, self.of_devices.amounts
        rows = [devices * (MILLI // size) + 1 for size in self.sizes] + [devices + 1]
        self.first_row = np.concatenate(([0], np.cumsum(rows)))
        known = {} if before is None else before.held_by_kind
        self.held_by_kind: dict[tuple[int, int, int], Floats] = {}
        self._held = [self._held_by(m, rows[kind], known) for m, kind in enumerate(self._kind)]

    def _held_by(self, m: int, rows: int, known: Mapping[tuple[int, int, int], Floats]) -> Floats:
        """(rows, steps) how many of a need a node holds, by count of its kind and CPU."""
        whole, wanted = self.needs[m].whole, int(self._steps_of[m])
        key = whole, rows, wanted
        found = self.held_by_kind.get(key)
        if found is None:
            found = known.get(key)
        if found is None:
            count = np.arange(rows) // max(whole, 1)
            cpu = np.arange(self.steps)
            by_cpu = cpu / wanted if wanted else np.full(self.steps, float(rows))
            found = np.minimum(count[:, None], by_cpu) * (cpu >= wanted)
        self.held_by_kind[key] = found
        return found

    def sums(self, devices: Milli) -> Sums:
        """The sums of nodes with (D, n) free thousandths."""
        if devices.shape[1] <= FEW:
            return Sums(self.counts.take(devices, 0).sum(0), self.amounts.take(devices, 0).sum(0))
        counts, amounts = self.counts.take(devices[0], 0), self.amounts.take(devices[0], 0)
        for device in devices[1:]:
            counts += self.counts.take(device, 0)
            amounts += self.amounts.take(device, 0)
        return Sums(counts, amounts)

    def held(self, sums: Sums, cpu: Counts, allowed: Bools) -> Floats:
        """(M,) how many tasks of each need fit on all these nodes together.

        Args:
            sums: of the nodes.
            cpu: (n,) steps of free CPU.
            allowed: (n, M) which needs a node may hold.
        """
        found = np.zeros(len(self.needs))
        for m, kind in enumerate(self._kind):
            places = sums.counts[:, kind] + cpu
            found[m] = self._held[m].ravel().take(places)[allowed[:, m]].sum()
        return found

    def weighted(self, weights: Floats, slots_part: float) -> "Tables":
        """Tables of V.

        Args:
            weights: (Q, M) of each need on each group of nodes.
            slots_part: the factor of the second term.
        """
        groups, kinds = len(weights), len(self.sizes)
        slots = np.zeros((groups, int(self.first_row[-1]), self.steps))
        usable = np.zeros((groups, self.steps, kinds))
        cpu = np.arange(self.steps)
        for m, (need, kind) in enumerate(zip(self.needs, self._kind, strict=True)):
            held = slots_part * need.milli * self._held[m]
            enough = cpu >= self._steps_of[m]
            if need.whole:
                full = np.arange(len(held))
                held = held + (MILLI * full * (full >= need.whole))[:, None] * enough
            first = int(self.first_row[kind])
            for group in weights[:, m].nonzero()[0].tolist():  # few may hold what names a model
                weight = weights[group, m]
                slots[group, first : first + len(held)] += weight * held
                if not need.whole:
                    usable[group, :, kind] += weight * enough
        return Tables(self.first_row, slots, usable)


class Tables:
    """V of states, with the weights of the moment."""

    def __init__(self, first_row: Counts, slots: Floats, usable: Floats) -> None:
        groups, rows, self._steps = slots.shape
        self._kinds = usable.shape[2]
        self._of_group = rows * self._steps
        self._offsets = first_row[:-1] * self._steps
        self.slots: Floats = slots.ravel()
        self._usable = usable.reshape(groups * self._steps, self._kinds)

    def bases(self, group: int) -> list[int]:
        """(K + 1) where the entries of a group begin, by kind of count."""
        found: list[int] = (self._offsets + group * self._of_group).tolist()
        return found

    def weights(self, row: int) -> list[float]:
        """(K) factors of the amounts; rows are groups times steps of free CPU."""
        found: list[float] = self._usable[row].tolist()
        return found

    def places(self, counts: Counts, group: Counts) -> Counts:
        """(n, K + 1) counts of nodes of these groups as places in the table, without CPU."""
        places: Counts = counts + self._offsets
        places += (group * self._of_group)[:, None]
        return places

    def value(self, places: Counts, amounts: Floats, cpu: Counts, group: Counts) -> Floats:
        """(n,) V; every row is summed by itself, so it does not depend on the others.

        Args:
            places: (n, K + 1) without CPU; changed.
            amounts: (n, K); changed.
            cpu: (n,) steps of free CPU.
            group: (n,) groups of the nodes.
        """
        places += cpu[:, None]
        found: Floats = self.slots.take(places).cumsum(1)[:, -1]
        if self._kinds:
            amounts *= self._usable.take(group * self._steps + cpu, 0)
            found += amounts.cumsum(1)[:, -1]
        return found


Need = tuple[int, int, int]
"""Whole devices, thousandths of one device (0 without a share), millicores."""
Change = tuple[tuple[int, ...], tuple[float, ...]]
"""The change of the counts and of the amounts of a node by a placement."""
State = tuple[list[int], list[float], int]
"""The state of a node: its counts as places in the table, its amounts, its group."""


class Single:
    """Values of single nodes for one set of tables."""

    def __init__(self, needs: NeedTables, tables: Tables) -> None:
        self._tables, self._step, self._steps = tables, needs.step, needs.steps
        self._counts = needs.of_devices.count_rows
        self._amounts = needs.of_devices.amount_rows
        self._slots = tables.slots.data
        self._usable: dict[int, list[float]] = {}
        self._bases: dict[int, list[int]] = {}
        self._changes: dict[tuple[int, int, int], Change] = {}

    def state(self, devices: Sequence[int], group: int) -> State:
        """The state of a node of a group with these free thousandths on its devices."""
        base = self._bases.get(group)
        if base is None:
            base = self._bases[group] = self._tables.bases(group)
        counts, amounts = self._counts, self._amounts
        places = [sum(each) for each in zip(base, *[counts[free] for free in devices], strict=True)]
        if not amounts[0]:
            return places, [], group
        sums = [sum(each) for each in zip(*[amounts[free] for free in devices], strict=True)]
        return places, sums, group

    def value(self, state: State, cpu: int, change: Change | None = None) -> float:
        """V of a node with so many free millicores, after what a placement changes."""
        places, amounts, group = state
        step, slots = self._step_of(cpu), self._slots
        found = usable = 0.0
        if change is None:
            for place in places:
                found += slots[place + step]
            for amount, weight in zip(amounts, self._weights(group, step), strict=True):
                usable += amount * weight
            return found + usable
        for place, more in zip(places, change[0], strict=True):
            found += slots[place + more + step]
        if amounts:
            weights = self._weights(group, step)
            for amount, added, weight in zip(amounts, change[1], weights, strict=True):
                usable += (amount + added) * weight
        return found + usable

    def after_whole(self, need: Need, state: State, devices: Sequence[int], cpu: int) -> float:
        """V after whole devices, or none, were taken; minus infinity where they are not free."""
        whole = need[0]
        if whole and devices.count(MILLI) < whole:
            return -float("inf")
        return self.value(state, cpu - need[2], self._change(whole, 0, MILLI))

    def after_share(self, need: Need, state: State, free: int, cpu: int) -> float:
        """V after a share was taken of a device with so many free thousandths."""
        return self.value(state, cpu - need[2], self._change(0, need[1], free))

    def best_share(self, need: Need, state: State, devices: Sequence[int], cpu: int) -> float:
        """V after a share was taken of the device for which it is largest."""
        return max(
            [self.after_share(need, state, free, cpu) for free in set(devices) if free >= need[1]],
            default=-float("inf"),
        )

    def _change(self, whole: int, share: int, free: int) -> Change:
        """The change by taking whole devices, or a share of a device with so much free."""
        known = self._changes.get((whole, share, free))
        if known is None:
            counts, amounts = self._counts[free], self._amounts[free]
            if share:
                rest = free - share
                more = zip(self._counts[rest], counts, strict=True)
                usable = zip(self._amounts[rest], amounts, strict=True)
                known = tuple(a - b for a, b in more), tuple(a - b for a, b in usable)
            else:
                known = tuple(-whole * c for c in counts), tuple(-whole * a for a in amounts)
            self._changes[whole, share, free] = known
        return known

    def _step_of(self, cpu: int) -> int:
        return min(max(cpu // self._step, 0), self._steps - 1)

    def _weights(self, group: int, step: int) -> list[float]:
        key = group * self._steps + step
        known = self._usable.get(key)
        if known is None:
            known = self._usable[key] = self._tables.weights(key)
        return known
