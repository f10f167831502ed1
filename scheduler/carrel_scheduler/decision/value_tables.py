"""Look-up tables for the value of node states (see ``value``): V as a sum of few table entries.

A state is told by *sums* over its devices, K + 1 counts and K amounts for K distinct sizes of
share: how many shares of each size fit, how many devices are whole, and the thousandths on devices
on which a share of each size fits. With CPU in steps and nodes in *groups* that may hold the same
needs, V is one entry per count (``_slots``) plus one factor per amount (``_usable``).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from carrel_scheduler.decision.layers import Bools, Counts
from carrel_scheduler.decision.resources import MILLI
from carrel_scheduler.decision.shapes_seen import CPU_STEP, TypicalNeed
from carrel_scheduler.decision.shares import share_table

MOST_STEPS = 512
Floats = npt.NDArray[np.float64]
Sums = npt.NDArray[np.int32]


class NeedTables:
    """What follows from the typical needs alone, whatever they weigh.

    Attributes:
        by_device: (1001, 2 K + 1) what a device with so many free thousandths adds to the sums.
        step: millicores of one step of CPU.
    """

    def __init__(self, needs: Sequence[TypicalNeed], devices: int, most_cpu: int) -> None:
        self.needs = tuple(needs)
        self.sizes = sorted({need.share for need in needs if not need.whole})
        self.step = CPU_STEP * max(1, -(-most_cpu // (CPU_STEP * MOST_STEPS)))
        self.steps = most_cpu // self.step + 1
        self._steps_of = np.array([-(-need.cpu_milli // self.step) for need in needs], np.int64)
        self._kind = [
            len(self.sizes) if need.whole else self.sizes.index(need.share) for need in needs
        ]
        self.by_device = self._device_table()
        rows = [devices * (MILLI // size) + 1 for size in self.sizes] + [devices + 1]
        self.first_row = np.concatenate(([0], np.cumsum(rows)))
        self._held = [self._held_by(m, rows[kind]) for m, kind in enumerate(self._kind)]

    def _device_table(self) -> Sums:
        free = np.arange(MILLI + 1)
        fit = [share_table(size) for size in self.sizes]
        usable = [np.where(free >= size, free, 0) for size in self.sizes]
        return np.column_stack([*fit, free == MILLI, *usable]).astype(np.int32)

    def _held_by(self, m: int, rows: int) -> Floats:
        """(rows, steps) how many of a need a node holds, by count of its kind and CPU."""
        count = np.arange(rows)
        if self.needs[m].whole:
            count = count // self.needs[m].whole
        cpu, wanted = np.arange(self.steps), int(self._steps_of[m])
        by_cpu = cpu / wanted if wanted else np.full(self.steps, float(rows))
        return np.minimum(count[:, None], by_cpu) * (cpu >= wanted)

    def sums(self, devices: npt.NDArray[np.int16]) -> Sums:
        """(n, 2 K + 1) of nodes with (D, n) free thousandths."""
        found: Sums = self.by_device.take(devices[0], 0)
        for device in devices[1:]:
            found += self.by_device.take(device, 0)
        return found

    def held(self, sums: Sums, cpu: Counts, allowed: Bools) -> Floats:
        """(M,) how many of each need all these nodes hold.

        Args:
            sums: (n, 2 K + 1) of the nodes.
            cpu: (n,) steps of free CPU.
            allowed: (n, M) which needs a node may hold.
        """
        found = np.zeros(len(self.needs))
        for m, kind in enumerate(self._kind):
            places = sums[:, kind].astype(np.int64) * self.steps + cpu
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
        for m, (need, kind) in enumerate(zip(self.needs, self._kind, strict=True)):
            held = slots_part * need.milli * self._held[m]
            enough = np.arange(self.steps) >= self._steps_of[m]
            if need.whole:
                full = np.arange(len(held))
                held = held + (MILLI * full * (full >= need.whole))[:, None] * enough
            else:
                usable[:, :, kind] += weights[:, m, None] * enough
            first = int(self.first_row[kind])
            slots[:, first : first + len(held)] += weights[:, m, None, None] * held
        return Tables(self.first_row, slots, usable)


class Tables:
    """V of states, with the weights of the moment."""

    def __init__(self, first_row: Counts, slots: Floats, usable: Floats) -> None:
        groups, rows, self._steps = slots.shape
        self._kinds = usable.shape[2]
        self._of_group = rows * self._steps
        self._offsets = first_row[:-1] * self._steps
        self._slots = slots.ravel()
        self._usable = usable.reshape(groups * self._steps, self._kinds)

    def value(self, sums: Sums, cpu: Counts, group: Counts) -> Floats:
        """(n,) V; every row is summed by itself, so it does not depend on the others.

        Args:
            sums: (n, 2 K + 1).
            cpu: (n,) steps of free CPU.
            group: (n,) groups of the nodes.
        """
        counts = self._kinds + 1
        places = sums[:, :counts] * np.int64(self._steps)
        places += self._offsets
        places += (group * self._of_group + cpu)[:, None]
        found: Floats = self._slots.take(places).sum(1)
        if self._kinds:
            factors = self._usable.take(group * self._steps + cpu, 0)
            factors *= sums[:, counts:]
            found += factors.sum(1)
        return found
