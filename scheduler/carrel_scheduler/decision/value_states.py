"""Nodes as the value function sees them, and the losses found so far, kept while they hold.

The view is compared with what was seen last, so nobody has to report changes and any view may be
asked about, one of a speculation too: what is kept is a function of prices and node state only.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from carrel_scheduler.decision.layers import CPU, Counts, Layer, Milli
from carrel_scheduler.decision.resources import MILLI
from carrel_scheduler.decision.value_tables import Floats, NeedTables, Tables

QUANTUM = 50
"""Thousandths of a GPU; smaller differences are left to bin packing."""

ROUNDING = 1e-9
MOST_KEPT = 256
IMPOSSIBLE = -np.inf
Need = tuple[int, int, int]
"""Whole devices, thousandths of one device (0 without a share), millicores."""


@dataclass(slots=True)
class _Kept:
    """Gains of one need by node, and the tick at which each was found."""

    gain: npt.NDArray[np.int32]
    found: npt.NDArray[np.int32]


class States:
    """Sums of all nodes for one set of tables."""

    def __init__(
        self, needs: NeedTables, tables: Tables, group: Counts, pack: float, view: Layer
    ) -> None:
        self._needs, self._tables, self._group, self._pack = needs, tables, group, pack
        self._devices = view.devices.copy()
        self._cpu = view.host[CPU].copy()
        self._sums = needs.sums(self._devices)
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

    def follow(self, view: Layer) -> None:
        """Take over what differs in a view of the same shape."""
        differs = (view.devices != self._devices).any(0)
        differs |= view.host[CPU] != self._cpu
        nodes = np.flatnonzero(differs)
        if not len(nodes):
            return
        devices = view.devices.take(nodes, 1)
        self._devices[:, nodes] = devices
        self._cpu[nodes] = view.host[CPU].take(nodes)
        self._sums[nodes] = self._needs.sums(devices)
        self._tick += 1
        self._changed[nodes] = self._tick

    def gains(self, need: Need, nodes: Counts) -> Counts:
        """(n,) minus the loss of placing such a task on each node, in steps of ``QUANTUM``."""
        kept = self._kept.get(need)
        if kept is None:
            kept = self._keep(need)
        stale = nodes.compress(kept.found.take(nodes) < self._changed.take(nodes))
        if len(stale):
            kept.gain[stale] = self._gains(need, stale)
            kept.found[stale] = self._tick
        return kept.gain.take(nodes).astype(np.int64)

    def after_share(self, share: int, cpu: int, node: int, free: Milli) -> Floats:
        """(d,) V of a node after a share was taken of a device with so much free."""
        nodes = np.full(len(free), node, np.int64)
        return self._after_share(share, cpu, nodes, free)

    def _keep(self, need: Need) -> _Kept:
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        width = len(self._cpu)
        kept = self._kept[need] = _Kept(np.zeros(width, np.int32), np.zeros(width, np.int32))
        return kept

    def _gains(self, need: Need, nodes: Counts) -> npt.NDArray[np.int32]:
        whole, share, cpu = need
        if share:
            after = self._best_share(share, cpu, nodes)
        else:
            sums = self._sums.take(nodes, 0)
            if whole:
                sums -= whole * self._needs.by_device[MILLI]
            after = self._tables.value(sums, self._steps(nodes, cpu), self._group.take(nodes))
        after -= self._before(nodes)
        after -= self._pack * self._devices.take(nodes, 1).sum(0, dtype=np.int64)
        after /= QUANTUM
        after += ROUNDING
        return np.floor(after, out=after).astype(np.int32)

    def _best_share(self, share: int, cpu: int, nodes: Counts) -> Floats:
        """V after a share was taken of the device for which it is largest."""
        free = self._devices.take(nodes, 1)
        free.sort(0)
        fits = free >= share
        fits[1:] &= free[1:] != free[:-1]
        device, place = np.nonzero(fits)
        after = np.full(free.shape, IMPOSSIBLE)
        after[device, place] = self._after_share(share, cpu, nodes.take(place), free[device, place])
        best: Floats = after.max(0)
        return best

    def _after_share(self, share: int, cpu: int, nodes: Counts, free: Milli) -> Floats:
        by_device = self._needs.by_device
        sums = self._sums.take(nodes, 0)
        sums -= by_device.take(free, 0)
        sums += by_device.take(free - np.int16(share), 0)
        return self._tables.value(sums, self._steps(nodes, cpu), self._group.take(nodes))

    def _before(self, nodes: Counts) -> Floats:
        stale = nodes.compress(self._valued.take(nodes) < self._changed.take(nodes))
        if len(stale):
            self._value[stale] = self._tables.value(
                self._sums.take(stale, 0), self._steps(stale, 0), self._group.take(stale)
            )
            self._valued[stale] = self._tick
        return self._value.take(nodes)

    def _steps(self, nodes: Counts, less: int) -> Counts:
        """(n,) steps of free CPU after some was taken."""
        steps: Counts = (self._cpu.take(nodes) - less) // self._needs.step
        return np.minimum(steps, self._needs.steps - 1)
