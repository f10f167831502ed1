"""Fragmentation gradient descent (Weng et al., USENIX ATC'23) as published, in plain NumPy.

It is told the trace beforehand: its typical pods are the most frequent ones, 95 % of all. A node's
fragment is the free GPU that a pod drawn from these cannot use,

    fragment = free - sum over kinds k of usable_k part_k(free CPU, model)

where kinds are the distinct sizes of shares and numbers of whole devices, usable_k what a pod of
kind k could use on the node's devices, and part_k the probability of such a pod with little enough
CPU and the right model. The score of a placement is ``int(100 sigmoid(decrease / 1000))``, ties go
to the tightest node.
"""

from collections import Counter

import numpy as np
from typing_extensions import override

from benchmarks.packing_peers import EXACT, Floats, Peer, PodType
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI

TYPICAL = 0.95
Key = tuple[int, int, int, NodeConstraint]
"""Millicores, whole devices, thousandths of a share, models."""


class FragmentationGradient(Peer):
    """Least new fragments."""

    def __init__(self, nodes: list[NodeSet], pods: list[tuple[Request, int]]) -> None:
        super().__init__(nodes)
        typical = _typical(pods)
        total = sum(typical.values())
        gpu = {key: count / total for key, count in typical.items() if key[1] or key[2]}
        shares = sorted({key[2] for key in gpu if key[2]})
        wholes = sorted({key[1] for key in gpu if key[1]})
        self._shares = len(shares)
        free = np.arange(MILLI + 1)
        self._of_device = np.array([free * (free >= size) for size in shares], np.float64)
        self._of_device = self._of_device.reshape(len(shares), MILLI + 1).T.copy()
        full = np.arange(self.devices.shape[1] + 1)
        self._of_full = np.array([MILLI * full * (full >= size) for size in wholes], np.float64)
        self._of_full = self._of_full.reshape(len(wholes), len(full)).T.copy()
        self._needed = np.array(sorted({key[0] for key in gpu}), np.int64)
        names, self._model = np.unique(self.models, return_inverse=True)
        self._part = np.zeros((len(names), len(self._needed) + 1, len(shares) + len(wholes)))
        for (cpu, whole, share, where), part in gpu.items():
            kind = shares.index(share) if share else len(shares) + wholes.index(whole)
            may = self.allowed(Request(where=where))
            models = np.unique(self._model[may])
            self._part[models, 1 + int(self._needed.searchsorted(cpu)) :, kind] += part
        self._usable = self._of_device.take(self.devices, 0).sum(1)
        self._full = (self.devices == MILLI).sum(1)
        self._before = self._used(np.arange(len(self.cpu)), self.cpu)
        self._after: dict[int, Floats] = {}

    @override
    def moved(self, node: int) -> None:
        """Sums of the node anew."""
        free = self.devices[node]
        self._usable[node] = self._of_device.take(free, 0).sum(0)
        self._full[node] = (free == MILLI).sum()
        one = np.array([node], np.int64)
        self._before[node] = self._used(one, self.cpu.take(one))[0]

    @override
    def share_gain(self, kind: PodType, nodes: Counts, free: Counts) -> Floats:
        """The decrease of the fragment."""
        share = kind.pod.share_milli
        parts = self._parts(nodes, self.cpu.take(nodes) - kind.pod.cpu_milli)
        of_shares, of_wholes = parts[:, : self._shares], parts[:, self._shares :]
        change = self._change(share).take(free, 0)
        used = (self._usable.take(nodes, 0)[:, None] + change) * of_shares[:, None]
        full = self._full.take(nodes)[:, None] - (free == MILLI)
        usable: Floats = used.sum(2) + (self._of_full.take(full, 0) * of_wholes[:, None]).sum(2)
        usable += share - self._before.take(nodes)[:, None]
        return usable

    @override
    def whole_gain(self, kind: PodType, nodes: Counts) -> Floats:
        """The decrease of the fragment."""
        pod = kind.pod
        after = self._used(nodes, self.cpu.take(nodes) - pod.cpu_milli, pod.gpus)
        after += pod.gpus * MILLI - self._before.take(nodes)
        return after

    @override
    def rounded(self, gain: Floats) -> Floats:
        """An integer from 0 to 100."""
        score: Floats = np.floor(100 / (1 + np.exp(-gain / MILLI)) + EXACT)
        return score

    def _change(self, share: int) -> Floats:
        """(1001, shares) by how much taking the share of a device changes what is usable."""
        found = self._after.get(share)
        if found is None:
            less = np.maximum(np.arange(MILLI + 1) - share, 0)
            found = self._after[share] = self._of_device.take(less, 0) - self._of_device
        return found

    def _parts(self, nodes: Counts, cpu: Counts) -> Floats:
        """(n, kinds) of nodes with so much free CPU."""
        row = self._model.take(nodes) * (len(self._needed) + 1)
        row += self._needed.searchsorted(cpu, "right")
        return self._part.reshape(-1, self._part.shape[2]).take(row, 0)

    def _used(self, nodes: Counts, cpu: Counts, less: int = 0) -> Floats:
        """(n,) what typical pods could use of nodes from which whole devices were taken."""
        parts = self._parts(nodes, cpu)
        usable = self._usable.take(nodes, 0) - less * self._of_device[MILLI]
        of_full = self._of_full.take(self._full.take(nodes) - less, 0)
        found: Floats = (usable * parts[:, : self._shares]).sum(1)
        found += (of_full * parts[:, self._shares :]).sum(1)
        return found


def _typical(pods: list[tuple[Request, int]]) -> dict[Key, int]:
    """The most frequent pods that make up ``TYPICAL`` of all, with their numbers."""
    merged: Counter[Key] = Counter()
    for pod, count in pods:
        merged[pod.cpu_milli, pod.gpus, pod.share_milli, pod.where] += count
    kept: dict[Key, int] = {}
    for key, count in sorted(merged.items(), key=lambda one: -one[1]):
        kept[key] = count
        if sum(kept.values()) >= TYPICAL * merged.total():
            break
    return kept
