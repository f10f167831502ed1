"""Nodes as the value function sees them, and the losses found so far, kept while they hold.

The view is compared with what was seen last, so any view may be asked about, one of a speculation
too: what is kept is a function of prices and node state only. Of a view that notes its changes only
these are compared, as long as no other view is asked about in between.
"""

import math

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.layers import CPU, Counts, Layer, Milli
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.scoring.value_tables import (
    Floats,
    Need,
    NeedTables,
    Single,
    State,
    Tables,
)

QUANTUM = 50
"""Thousandths of a GPU; smaller differences are left to bin packing."""

ROUNDING = 1e-9
MOST_KEPT = 256
FEW = 8
"""The number of nodes up to which comparing one by one is faster than as arrays."""
SINGLY = 5
"""The number of nodes up to which valuing one by one is faster."""
EQUAL = 1e-6
"""A smaller difference of V between devices is none."""
IMPOSSIBLE = -np.inf
WORST = -(2.0**31)


class _NodeGains:
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
        self._kept: dict[Need, _NodeGains] = {}
        self._view: Layer | None = None
        self._seen = 0
        self._single = Single(needs, tables)
        self._singles: dict[int, State] = {}
        self._behind: set[int] = set()

    @property
    def shape(self) -> tuple[int, ...]:
        """(D, N) of the view from which the states were made."""
        return self._devices.shape

    def follow(self, view: Layer, nodes: Counts) -> None:
        """Copy the nodes that differ from a view of the same shape."""
        changes = view.changes
        if changes is None:
            self._view = None
        elif view is self._view:
            if self._seen == len(changes):
                return
            fresh = dict.fromkeys(changes[self._seen :])
            self._seen = len(changes)
            if len(fresh) <= FEW:
                for node in fresh:
                    if self._differs(view, node):
                        self._change(view, node)
                return
            nodes = np.fromiter(fresh, np.int64, len(fresh))
        else:
            self._view, self._seen = view, len(changes)
            nodes = np.arange(len(self._cpu))
        differs = (view.devices.take(nodes, 1) != self._devices.take(nodes, 1)).any(axis=0)
        differs |= view.host[CPU].take(nodes) != self._cpu.take(nodes)
        if differs.any():
            self._renew(view, nodes.compress(differs))

    def _differs(self, view: Layer, node: int) -> bool:
        mine, other = self._devices[:, node], view.devices[:, node]
        same_cpu = bool(self._cpu.item(node) == view.host.item(CPU, node))
        return not same_cpu or mine.tobytes() != other.tobytes()

    def _change(self, view: Layer, node: int) -> None:
        """Copy one node from a view; its sums are computed when they are read."""
        self._devices[:, node] = view.devices[:, node]
        self._cpu[node] = view.host.item(CPU, node)
        self._singles.pop(node, None)
        self._behind.add(node)
        self._tick += 1
        self._changed[node] = self._tick

    def _renew(self, view: Layer, nodes: Counts) -> None:
        """Copy these nodes from a view and compute their sums."""
        self._devices[:, nodes] = view.devices.take(nodes, 1)
        self._cpu[nodes] = view.host[CPU].take(nodes)
        self._sum(nodes)
        for node in nodes.tolist():
            self._singles.pop(node, None)
        self._tick += 1
        self._changed[nodes] = self._tick

    def _sum(self, nodes: Counts) -> None:
        """Compute the sums of these nodes."""
        sums = self._needs.sums(self._devices.take(nodes, 1))
        self._places[nodes] = self._tables.places(sums.counts, self._group.take(nodes))
        self._amounts[nodes] = sums.amounts

    def gains(self, need: Need, nodes: Counts) -> npt.NDArray[np.int32]:
        """(n,) minus the loss of placing such a task on each node, in steps of ``QUANTUM``."""
        kept = self._of(need)
        stale = nodes.compress(kept.found.take(nodes) < self._changed.take(nodes))
        if len(stale) > SINGLY:
            kept.gain[stale] = self._gains(need, kept, stale)
            kept.found[stale] = self._tick
        elif len(stale):
            for node in stale.tolist():
                kept.gain[node] = self._gain(need, node)
                kept.found[node] = self._tick
        return kept.gain.take(nodes)

    def device(self, need: Need, node: int, view: Layer) -> int:
        """The device of a node in a view for a share, -1 where there is none.

        The one after which the node is worth most; of equal ones the fullest, then the first.
        """
        devices, cpu = view.devices[:, node].tolist(), view.host.item(CPU, node)
        state = self._single.state(devices, self._group.item(node))
        value = {
            free: self._single.after_share(need, state, free, cpu)
            for free in set(devices)
            if free >= need[1]
        }
        if not value:
            return -1
        least = max(value.values()) - EQUAL
        best: int = devices.index(min([free for free, found in value.items() if found >= least]))
        return best

    def _of(self, need: Need) -> _NodeGains:
        kept = self._kept.get(need)
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[need] = _NodeGains(need, self._needs, len(self._cpu))
        return kept

    def _gain(self, need: Need, node: int) -> int:
        """``_gains`` of one node."""
        devices, cpu = self._devices[:, node].tolist(), self._cpu.item(node)
        state, single = self._singles.get(node), self._single
        if state is None:
            state = self._singles[node] = single.state(devices, self._group.item(node))
        if self._valued.item(node) < self._changed.item(node):
            self._value[node] = single.value(state, cpu)
            self._valued[node] = self._tick
        after = (single.best_share if need[1] else single.after_whole)(need, state, devices, cpu)
        after -= self._value.item(node)
        if self._pack:
            after -= self._pack * sum(devices)
        return math.floor(max(after / QUANTUM, WORST) + ROUNDING)

    def _gains(self, need: Need, kept: _NodeGains, nodes: Counts) -> npt.NDArray[np.int32]:
        if self._behind:
            self._sum(np.fromiter(self._behind, np.int64, len(self._behind)))
            self._behind.clear()
        after = (self._best_share if need[1] else self._after_whole)(need, kept, nodes)
        after -= self._before(nodes)
        if self._pack:
            after -= self._pack * self._devices.take(nodes, 1).sum(0, dtype=np.int64)
        after /= QUANTUM
        np.maximum(after, WORST, out=after)
        after += ROUNDING
        return np.floor(after, out=after).astype(np.int32)

    def _after_whole(self, need: Need, kept: _NodeGains, nodes: Counts) -> Floats:
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

    def _best_share(self, need: Need, kept: _NodeGains, nodes: Counts) -> Floats:
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

    def _after_share(self, kept: _NodeGains, cpu: int, nodes: Counts, free: Milli) -> Floats:
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
