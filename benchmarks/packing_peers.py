"""The peers on openb, on the same pods: best fit, and fragmentation gradient descent as published.

Best fit takes the node with the least left: the sum of free CPU and GPU, each as a part of the
largest node; a share takes the tightest device. Fragmentation gradient descent is in
``packing_fgd``. Both are plain NumPy: scores are kept per pod type, and only nodes that changed are
scored again.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from benchmarks.openb import MODEL
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI

IMPOSSIBLE = -np.inf
EXACT = 1e-6
"""Gains that differ by less are equal."""

Floats = npt.NDArray[np.float64]
Place = tuple[int, tuple[int, ...], Request]


class PodType:
    """The cached values of equal pods.

    Attributes:
        may: (N,) nodes of the pod's models; score: (N,) of placing one, ``IMPOSSIBLE`` where it
            does not fit; device: (N,) what a share takes.
        read: how much of the log of changed nodes the scores reflect.
    """

    def __init__(self, pod: Request, may: Bools) -> None:
        self.pod, self.may = pod, may
        self.score: Floats = np.full(len(may), IMPOSSIBLE)
        self.device: Counts = np.zeros(len(may), np.int64)
        self.read = 0


class Peer:
    """Nodes as arrays; subclasses score placements."""

    def __init__(self, nodes: list[NodeSet]) -> None:
        count, most = len(nodes), max(node.devices for node in nodes)
        self.devices = np.zeros((count, most), np.int64)
        for slot, node in enumerate(nodes):
            self.devices[slot, : node.devices] = MILLI
        self.cpu = np.array([node.cpu_milli for node in nodes], np.int64)
        self.memory = np.array([node.memory_mib for node in nodes], np.int64)
        self.models = np.array([dict(node.labels)[MODEL] for node in nodes])
        self._types: dict[Request, PodType] = {}
        self._log: list[int] = []

    def share_gain(self, kind: PodType, nodes: Counts, free: Counts) -> Floats:
        """(n, D) how good it is to take the share of each device; larger is better."""
        raise NotImplementedError

    def whole_gain(self, kind: PodType, nodes: Counts) -> Floats:
        """(n,) how good it is to take whole devices, or CPU only."""
        raise NotImplementedError

    def rounded(self, gain: Floats) -> Floats:
        """The score of a gain; equal ones go to the tightest node."""
        return gain

    def moved(self, node: int) -> None:
        """Update after an amount of a node was taken or given back."""

    def place(self, pods: Sequence[Request]) -> list[Place | None]:
        """Place pods: their places, ``None`` for each that does not fit."""
        return [self._place(pod) for pod in pods]

    def finish(self, place: Place) -> None:
        """The pod placed there ended."""
        node, devices, pod = place
        self._move(node, list(devices), pod, 1)

    def _place(self, pod: Request) -> Place | None:
        kind = self._type(pod)
        changed = set(self._log[kind.read :])
        kind.read = len(self._log)
        if changed:
            self._rescore(kind, np.array(sorted(changed), np.int64))
        node = int(kind.score.argmax())
        if kind.score[node] == IMPOSSIBLE:
            return None
        if pod.share_milli:
            chosen = [int(kind.device[node])]
        else:
            chosen = np.flatnonzero(self.devices[node] == MILLI)[: pod.gpus].tolist()
        self._move(node, chosen, pod, -1)
        return node, tuple(chosen), pod

    def _move(self, node: int, devices: list[int], pod: Request, sign: int) -> None:
        self.devices[node, devices] += sign * (pod.share_milli or MILLI)
        self.cpu[node] += sign * pod.cpu_milli
        self.memory[node] += sign * pod.memory_mib
        self.moved(node)
        self._log.append(node)

    def _type(self, pod: Request) -> PodType:
        kind = self._types.get(pod)
        if kind is None:
            kind = self._types[pod] = PodType(pod, self.allowed(pod))
            kind.read = len(self._log)
            self._rescore(kind, np.arange(len(self.cpu)))
        return kind

    def allowed(self, pod: Request) -> Bools:
        """(N,) the nodes of the pod's models."""
        if not pod.where.labels:
            return np.ones(len(self.cpu), np.bool_)
        return np.isin(self.models, sorted(pod.where.labels[0][1]))

    def _rescore(self, kind: PodType, nodes: Counts) -> None:
        pod = kind.pod
        fits = kind.may.take(nodes)
        fits &= self.cpu.take(nodes) >= pod.cpu_milli
        fits &= self.memory.take(nodes) >= pod.memory_mib
        free = self.devices.take(nodes, 0)
        open_devices = free >= (pod.share_milli or MILLI)
        fits &= open_devices.sum(1) >= (1 if pod.share_milli else pod.gpus)
        kind.score[nodes] = IMPOSSIBLE
        nodes, free = nodes.compress(fits), free.compress(fits, 0)
        if not len(nodes):
            return
        if pod.share_milli:
            gain = self._best_device(kind, nodes, free, open_devices.compress(fits, 0))
        else:
            gain = self.whole_gain(kind, nodes)
        score = self.rounded(gain)
        kind.score[nodes] = score - 1e-6 * free.sum(1) - 1e-10 * self.cpu.take(nodes)

    def _best_device(
        self, kind: PodType, nodes: Counts, free: Counts, open_devices: Bools
    ) -> Floats:
        """(n,) the largest gain of any device; of equal ones the tightest is remembered."""
        gain = self.share_gain(kind, nodes, free)
        gain[~open_devices] = IMPOSSIBLE
        best: Floats = gain.max(1)
        equal = gain >= best[:, None] - EXACT
        kind.device[nodes] = np.where(equal, free, MILLI + 1).argmin(1)
        return best


class BestFit(Peer):
    """Least left."""

    @override
    def share_gain(self, kind: PodType, nodes: Counts, free: Counts) -> Floats:
        """The same for all devices."""
        return np.repeat(self.whole_gain(kind, nodes)[:, None], free.shape[1], 1)

    @override
    def whole_gain(self, kind: PodType, nodes: Counts) -> Floats:
        """Minus what is left, as parts of the largest node."""
        pod, largest = kind.pod, float(self.devices.shape[1] * MILLI)
        taken = pod.gpus * MILLI + pod.share_milli
        left: Floats = (self.devices.take(nodes, 0).sum(1) - taken) / largest
        left += (self.cpu.take(nodes) - pod.cpu_milli) / self._most_cpu
        return -left

    def __init__(self, nodes: list[NodeSet]) -> None:
        super().__init__(nodes)
        self._most_cpu = float(self.cpu.max())
