"""Choice of a node: one order for all work, one vectorised step for one task or for many alike.

Nodes on which a task fits are compared by, in this order:

1. the caller's score (topology), larger first;
2. preferred labels: more of them first;
3. work without GPUs goes to nodes without GPUs; as long as no values are known (4), also to nodes
   with few rather than many;
4. the loss of value for what is typically asked for (``value``), smaller first; as long as too few
   arrivals were seen, a share goes where it fits on a device that is shared already, and a new
   device comes last;
5. bin packing: least free GPU, then least free CPU; without GPUs, and before values are known, by
   CPU only. Spread, which looks at no values: the largest free part of GPUs, or of CPU;
6. the name of the node.

All comparisons are between integers. The tie of 5 and 6 is one number per node; 1 to 4 narrow the
candidates, so none of them can outweigh another.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.capacity.eligibility import Eligible
from carrel_scheduler.core.devices.classes import Classes, GpuForm, GpuKind
from carrel_scheduler.core.devices.device_choice import capacity
from carrel_scheduler.core.layers import CPU, Bools, Counts, Layer, free_gpu
from carrel_scheduler.core.nodes.nodes import MOST_DEVICES, NodeColumns
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.scoring.value import Value
from carrel_scheduler.core.settings import DEFAULTS, Settings, Strategy

NOWHERE = -1
PARTS = 1 << 20
WORD_BITS = 62
SHARED = (GpuForm.SHARE, GpuForm.MEMORY, GpuForm.MIG)
Keys = npt.NDArray[np.signedinteger]
Tier = Callable[[Counts], Keys]
Spread = list[tuple[int, int]]
"""Pairs of node and number of tasks there."""


class Chooser:
    """Chooses nodes for tasks of a class."""

    def __init__(
        self,
        classes: Classes,
        nodes: NodeColumns,
        eligible: Eligible,
        settings: Settings = DEFAULTS,
    ) -> None:
        self._classes, self._nodes, self._eligible = classes, nodes, eligible
        self._packs_gpu = settings.gpu_strategy is Strategy.BIN_PACK
        self._packs_cpu = settings.cpu_strategy is Strategy.BIN_PACK
        self.value = Value(classes, nodes, eligible)
        self._bits_of = (-1, (0, 0, 0))

    def arrived(self, class_ids: tuple[int, ...]) -> None:
        """A workload with tasks of these classes was queued: typical needs are learned from it."""
        if len(class_ids) == 1:
            self.value.seen(class_ids[0], 1)
            return
        for class_id, tasks in Counter(class_ids).items():
            self.value.seen(class_id, tasks)

    def ended(self, tasks: int = 1) -> None:
        """Count tasks that ended for good: prices follow from how much capacity comes back."""
        self.value.ended(tasks)

    def pick(
        self,
        class_id: int,
        counts: npt.NDArray[np.signedinteger],
        view: Layer,
        within: Bools | None = None,
        score: Counts | None = None,
    ) -> int:
        """The node for one task, or ``NOWHERE``.

        Args:
            class_id: of the task.
            counts: (N,) how many tasks fit on each node in the view.
            view: the capacity on which it is to be placed.
            within: (N,) the nodes to choose from; ``None`` all.
            score: (N,) larger is taken first, before anything else.
        """
        fits = counts > 0
        if within is not None:
            fits &= within
        nodes = fits.nonzero()[0]
        if not len(nodes):
            return NOWHERE
        tiers = self._tiers(class_id, view, score) if len(nodes) > 1 else ()
        for tier in tiers:
            key = tier(nodes)
            nodes = nodes.compress(key == key[key.argmax()])
            if len(nodes) == 1:
                break
        if len(nodes) > 1:
            nodes = nodes[self._tie(class_id, view, nodes).argmin() :]
        return nodes.item(0)

    def spread(
        self,
        class_id: int,
        tasks: int,
        counts: npt.NDArray[np.signedinteger],
        view: Layer,
        within: Bools | None = None,
        score: Counts | None = None,
    ) -> Spread | None:
        """Nodes for so many tasks, in the order in which they are filled, or ``None``.

        Arguments as for ``pick``. A node that is begun is filled before the next one.
        """
        fits = counts > 0
        if within is not None:
            fits &= within
        nodes = np.flatnonzero(fits)
        fitting = counts.take(nodes).astype(np.int64)
        if int(fitting.sum()) < tasks:
            return None
        order = self._order(class_id, view, nodes, score, tasks)
        nodes, fitting = nodes.take(order), fitting.take(order)
        filled = fitting.cumsum()
        last = int(filled.searchsorted(tasks))
        taken = fitting[: last + 1]
        taken[last] -= filled[last] - tasks
        return list(zip(nodes[: last + 1].tolist(), taken.tolist(), strict=True))

    def device(self, class_id: int, view: Layer, node: int) -> int:
        """The device of the chosen node for a share of one device, -1 without an opinion."""
        return self.value.device(class_id, view, node) if self._packs(class_id) else NOWHERE

    def _order(
        self, class_id: int, view: Layer, nodes: Counts, score: Counts | None, most: int
    ) -> Counts:
        """Positions of at least the best ``most`` nodes in the order in which they are filled."""
        tie = self._tie(class_id, view, nodes)
        rank = np.zeros(len(nodes), np.int64)
        for tier in self._tiers(class_id, view, score):
            rank = _refined(rank, tier(nodes))
        chosen = np.arange(len(nodes))
        if most < len(nodes):
            last = np.partition(rank, most - 1)[most - 1]
            sure, equal = (rank < last).nonzero()[0], (rank == last).nonzero()[0]
            wanted = most - len(sure)
            if wanted < len(equal):
                equal = equal.take(np.argpartition(tie.take(equal), wanted - 1)[:wanted])
            chosen = np.concatenate((sure, equal))
        return chosen.take(np.lexsort((tie.take(chosen), rank.take(chosen))))

    def _tiers(self, class_id: int, view: Layer, score: Counts | None) -> list[Tier]:
        """The keys of nodes that rank above packing, the most important first; larger is better."""
        tiers: list[Tier] = []
        if score is not None:
            tiers.append(score.take)
        preferences = self._eligible.preferred(self._classes.request(class_id).where)
        if preferences is not None:
            tiers.append(preferences.take)
        kind = self._classes.kinds[class_id]
        by_value = self._ranks_value(class_id)
        if kind.form is GpuForm.NONE:
            most = 1 if by_value else MOST_DEVICES
            tiers.append(lambda nodes: -np.minimum(self._nodes.devices.take(nodes), most))
        if by_value:
            tiers.append(lambda nodes: self.value.gains(class_id, view, nodes))
        elif kind.form in SHARED:
            tiers.append(lambda nodes: self._on_shared(kind, view, nodes))
        return tiers

    def _on_shared(self, kind: GpuKind, view: Layer, nodes: Counts) -> Counts:
        """1 where the need fits on devices that are shared already, else 0."""
        free = self._nodes.of_types(kind.types, view.devices.take(nodes, 1), nodes)
        there = capacity(
            kind,
            free * (free < MILLI),
            view.slots.take(nodes, 1),
            self._nodes.gpu_memory.take(nodes),
            self._eligible.models(nodes),
        )
        return (there > 0).astype(np.int64)

    def _tie(self, class_id: int, view: Layer, nodes: Counts) -> Counts:
        """(n,) one number per node, smaller first: the amount left, then the name."""
        with_gpu = self._classes.takes_gpu(class_id)
        by_gpu = with_gpu or self._ranks_value(class_id)
        free = None
        if by_gpu:
            free = free_gpu(view.devices, nodes)
        cpu = view.host[CPU].take(nodes)
        rank_bits, cpu_bits, gpu_bits = self._bits()
        if self._packs(class_id):
            coarser = max(0, gpu_bits + cpu_bits + rank_bits - WORD_BITS)
            key = cpu if free is None else _joined(free, cpu, cpu_bits, coarser)
        else:
            total = self._nodes.devices.take(nodes) * MILLI
            if not with_gpu:
                total = self._nodes.capacity[CPU].take(nodes)
            key = PARTS - (cpu if free is None else free) * PARTS // np.maximum(total, 1)
        key <<= rank_bits
        key |= self._nodes.rank.take(nodes)
        return key

    def _bits(self) -> tuple[int, int, int]:
        """Numbers of bits for places of nodes, millicores and thousandths of a node's GPUs."""
        nodes = self._nodes
        if self._bits_of[0] != nodes.version:
            places, cpu = int(nodes.rank.max(initial=0)), int(nodes.capacity[CPU].max(initial=0))
            gpus = len(nodes.usable) * MILLI
            bits = places.bit_length(), cpu.bit_length(), gpus.bit_length()
            self._bits_of = nodes.version, bits
        return self._bits_of[1]

    def _ranks_value(self, class_id: int) -> bool:
        return self._packs(class_id) and self.value.knows(class_id)

    def _packs(self, class_id: int) -> bool:
        spread = self._classes.requests[class_id].where.spread
        if spread is not None:
            return not spread
        return self._packs_gpu if self._classes.takes_gpu(class_id) else self._packs_cpu


def _refined(rank: Counts, keys: Keys) -> Counts:
    """Ranks, smaller first, in which equal ones are told apart by a key, larger first."""
    key = keys.astype(np.int64)
    top, spread = int(key.max()), int(key.max()) - int(key.min()) + 1
    if int(rank.max()) + 1 > (1 << WORD_BITS) // spread:
        rank = np.unique(rank, return_inverse=True)[1]
        ranks = np.unique(key)
        key, top, spread = ranks.searchsorted(key), len(ranks) - 1, len(ranks)
    refined: Counts = rank * spread
    refined += top - key
    return refined


def _joined(free: Counts, cpu: Counts, cpu_bits: int, coarser: int) -> Counts:
    """Both amounts in one number, free GPUs first, without low bits of CPU. Changes ``free``."""
    free <<= cpu_bits - coarser
    free |= cpu >> coarser
    return free
