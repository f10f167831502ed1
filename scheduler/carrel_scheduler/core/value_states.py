"""Nodes as the value function sees them, and the losses found so far, kept while they hold.

The view is compared with what was seen last, so nobody has to report changes and any view may be
asked about, one of a speculation too: what is kept is a function of prices and node state only.
"""

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.layers import CPU, Counts, Layer, Milli
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.value_tables import Floats, NeedTables, Tables

QUANTUM = 50
"""Thousandths of a GPU; smaller differences are left to bin packing."""

ROUNDING = 1e-9
MOST_KEPT = 256
IMPOSSIBLE = -np.inf
WORST = -(2.0**31)
Need = tuple[int, int, int]
"""Whole devices, thousandths of one device (0 without a share), millicores."""


class _Kept:
    """Gains of one need by node, and the tick at which each was found.

    Attributes:
        counts, amounts: what taking it of a device adds to the sums, by free thousandths of the
            device for a share, one row for whole devices or none.
    """

    __slots__ = ("amounts", "counts", "found", "gain")

    def __init__(self, need: Need, needs: NeedTables, width: int) -> None:
        whole, share, _ = need
        self.gain: npt.NDArray[np.int32] = np.zeros(width, np.int32)
        self.found: npt.NDArray[np.int32] = np.zeros(width, np.int32)
        if share:
            after = np.maximum(np.arange(MILLI + 1) - share, 0)
            self.counts = needs.counts.take(after, 0) - needs.counts
            self.amounts = needs.amounts.take(after, 0) - needs.amounts
        else:
            self.counts = -whole * needs.counts[MILLI]
            self.amounts = -whole * needs.amounts[MILLI]


class States:
    """Sums of all nodes for one set of tables."""

    def __init__(
        self, needs: NeedTables, tables: Tables, group: Counts, pack: float, view: Layer
    ) -> None:
        self._needs, self._tables, self._group, self._pack = needs, tables, group, pack
        self._devices = view.devices.copy()
        self._cpu = view.host[CPU].copy()
        sums = needs.sums(self._devices)
        self._places, self._amounts = tables.places(sums.counts, group), sums.amounts
        width = len(self._cpu)
        self._changed = np.ones(width, np.int32)
        self._tick = 1
        self._value = np.zeros(width)
        self._valued = np.zeros(width, np.int32)
        self._kept: dict[Need, _Kept] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """(D, N) of the view it was made for."""
        return self._devices.shape

    def follow(self, view: Layer, nodes: Counts) -> None:
        """Take over what differs on some nodes in a view of the same shape."""
        devices, cpu = view.devices.take(nodes, 1), view.host[CPU].take(nodes)
        differs = (devices != self._devices.take(nodes, 1)).any(axis=0)
        differs |= cpu != self._cpu.take(nodes)
        if not differs.any():
            return
        nodes, devices = nodes.compress(differs), devices.compress(differs, 1)
        self._devices[:, nodes] = devices
        self._cpu[nodes] = cpu.compress(differs)
        sums = self._needs.sums(devices)
        self._places[nodes] = self._tables.places(sums.counts, self._group.take(nodes))
        self._amounts[nodes] = sums.amounts
        self._tick += 1
        self._changed[nodes] = self._tick

    def gains(self, need: Need, nodes: Counts) -> Counts:
        """(n,) minus the loss of placing such a task on each node, in steps of ``QUANTUM``."""
        kept = self._of(need)
        stale = nodes.compress(kept.found.take(nodes) < self._changed.take(nodes))
        if len(stale):
            kept.gain[stale] = self._gains(need, kept, stale)
            kept.found[stale] = self._tick
        return kept.gain.take(nodes).astype(np.int64)

    def after_share(self, need: Need, node: int, view: Layer, free: Milli) -> Floats:
        """(d,) V of a node in a view after a share was taken of a device with so much free."""
        kept, nodes = self._of(need), np.full(len(free), node, np.int64)
        group = self._group.take(nodes)
        sums = self._needs.sums(view.devices[:, node, None])
        places = self._tables.places(sums.counts + kept.counts.take(free, 0), group)
        amounts = sums.amounts + kept.amounts.take(free, 0)
        cpu = self._steps(np.full(len(free), view.host[CPU, node]), need[2])
        return self._tables.value(places, amounts, cpu, group)

    def _of(self, need: Need) -> _Kept:
        kept = self._kept.get(need)
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[need] = _Kept(need, self._needs, len(self._cpu))
        return kept

    def _gains(self, need: Need, kept: _Kept, nodes: Counts) -> npt.NDArray[np.int32]:
        after = (self._best_share if need[1] else self._after_whole)(need, kept, nodes)
        after -= self._before(nodes)
        if self._pack:
            after -= self._pack * self._devices.take(nodes, 1).sum(0, dtype=np.int64)
        after /= QUANTUM
        np.maximum(after, WORST, out=after)
        np.minimum(after, -WORST - 1, out=after)
        after += ROUNDING
        return np.floor(after, out=after).astype(np.int32)

    def _after_whole(self, need: Need, kept: _Kept, nodes: Counts) -> Floats:
        """V after whole devices, or none, were taken; what is not free yet cannot be judged."""
        if need[0]:
            fits = (self._devices.take(nodes, 1) >= MILLI).sum(0) >= need[0]
            if not fits.all():
                after = np.full(len(nodes), IMPOSSIBLE)
                after[fits] = self._after_whole(need, kept, nodes.compress(fits))
                return after
        places = self._places.take(nodes, 0)
        places += kept.counts
        amounts = self._amounts.take(nodes, 0)
        amounts += kept.amounts
        steps = self._steps(self._cpu.take(nodes), need[2])
        return self._tables.value(places, amounts, steps, self._group.take(nodes))

    def _best_share(self, need: Need, kept: _Kept, nodes: Counts) -> Floats:
        """V after a share was taken of the device for which it is largest."""
        free = self._devices.take(nodes, 1)
        free.sort(0)
        fits = free >= need[1]
        fits[1:] &= free[1:] != free[:-1]
        device, place = fits.nonzero()
        after = np.full(free.shape, IMPOSSIBLE)
        after[device, place] = self._after_share(
            kept, need[2], nodes.take(place), free[device, place]
        )
        best: Floats = after.max(0)
        return best

    def _after_share(self, kept: _Kept, cpu: int, nodes: Counts, free: Milli) -> Floats:
        places = self._places.take(nodes, 0)
        places += kept.counts.take(free, 0)
        amounts = self._amounts.take(nodes, 0)
        amounts += kept.amounts.take(free, 0)
        steps = self._steps(self._cpu.take(nodes), cpu)
        return self._tables.value(places, amounts, steps, self._group.take(nodes))

    def _before(self, nodes: Counts) -> Floats:
        stale = nodes.compress(self._valued.take(nodes) < self._changed.take(nodes))
        if len(stale):
            self._value[stale] = self._tables.value(
                self._places.take(stale, 0),
                self._amounts.take(stale, 0),
                self._steps(self._cpu.take(stale), 0),
                self._group.take(stale),
            )
            self._valued[stale] = self._tick
        return self._value.take(nodes)

    def _steps(self, cpu: Counts, less: int) -> Counts:
        """(n,) steps of free CPU, of which so much is taken; changes ``cpu``."""
        cpu -= less
        cpu //= self._needs.step
        np.maximum(cpu, 0, out=cpu)
        return np.minimum(cpu, self._needs.steps - 1, out=cpu)
