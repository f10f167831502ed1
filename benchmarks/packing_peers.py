"""The peers on openb, on the same pods: best fit, and fragmentation gradient descent as published.

Best fit takes the node with the least left: the sum of free CPU and GPU, each as a part of the
largest node. Fragmentation gradient descent (Weng et al., USENIX ATC'23) knows the trace: its
typical pods are the most frequent ones, 95 % of all. A node's fragment is the free GPU that a pod
drawn from these cannot use; the score of a placement is ``int(100 sigmoid(decrease / 1000))``, ties
go to the tightest node. Both are plain NumPy: scores are kept per pod type, and only nodes that
changed are scored again.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from benchmarks.openb import MODEL
from carrel_scheduler.decision.events import NodeSet
from carrel_scheduler.decision.layers import Bools, Counts
from carrel_scheduler.decision.requests import Request, Where
from carrel_scheduler.decision.resources import MILLI

TYPICAL = 0.95
IMPOSSIBLE = -np.inf
EXACT = 1e-6
Floats = npt.NDArray[np.float64]
Place = tuple[int, tuple[int, ...], Request]


class Peer:
    """Nodes as arrays; subclasses score placements."""

    def __init__(self, nodes: list[NodeSet], pods: list[tuple[Request, int]]) -> None:
        count, most = len(nodes), max(node.devices for node in nodes)
        self.devices = np.zeros((count, most), np.int64)
        for slot, node in enumerate(nodes):
            self.devices[slot, : node.devices] = MILLI
        self.cpu = np.array([node.cpu_milli for node in nodes], np.int64)
        self.memory = np.array([node.memory_mib for node in nodes], np.int64)
        self.models = np.array([dict(node.labels)[MODEL] for node in nodes])
        self.most_cpu = int(self.cpu.max())
        self.learn(pods)
        self._types: dict[Request, int] = {}
        self._scores: list[Floats] = []
        self._choices: list[Counts] = []
        self._read: list[int] = []
        self._allowed: list[Bools] = []
        self._log: list[int] = []

    def learn(self, pods: list[tuple[Request, int]]) -> None:
        """Take note of the distinct pods of the trace and their numbers."""

    def gain(self, nodes: Counts, devices: Counts, cpu: Counts) -> Floats:
        """(n,) how good it is to leave nodes with these free devices (n, D) and CPU; larger."""
        raise NotImplementedError

    def place(self, pods: Sequence[Request]) -> list[Place | None]:
        """Where the pods went, ``None`` for each that does not fit."""
        return [self._place(pod) for pod in pods]

    def _place(self, pod: Request) -> Place | None:
        kind = self._type(pod)
        changed = self._log[self._read[kind] :]
        self._read[kind] = len(self._log)
        if changed:
            self._rescore(pod, kind, np.unique(changed))
        node = int(self._scores[kind].argmax())
        if self._scores[kind][node] == IMPOSSIBLE:
            return None
        free = self.devices[node]
        if pod.share_milli:
            chosen = [int(self._choices[kind][node])]
        else:
            chosen = np.flatnonzero(free == MILLI)[: pod.gpus].tolist()
        self._move(node, chosen, pod, -1)
        return node, tuple(chosen), pod

    def finish(self, place: Place) -> None:
        """The pod placed there ended."""
        node, devices, pod = place
        self._move(node, list(devices), pod, 1)

    def _move(self, node: int, devices: list[int], pod: Request, sign: int) -> None:
        self.devices[node, devices] += sign * (pod.share_milli or MILLI)
        self.cpu[node] += sign * pod.cpu_milli
        self.memory[node] += sign * pod.memory_mib
        self._log.append(node)

    def _type(self, pod: Request) -> int:
        kind = self._types.get(pod)
        if kind is None:
            kind = self._types[pod] = len(self._scores)
            count = len(self.cpu)
            self._scores.append(np.full(count, IMPOSSIBLE))
            self._choices.append(np.zeros(count, np.int64))
            self._allowed.append(self.allowed(pod))
            self._read.append(len(self._log))
            self._rescore(pod, kind, np.arange(count))
        return kind

    def allowed(self, pod: Request) -> Bools:
        """(N,) the nodes of the pod's models."""
        if not pod.where.labels:
            return np.ones(len(self.cpu), np.bool_)
        return np.isin(self.models, sorted(pod.where.labels[0][1]))

    def _rescore(self, pod: Request, kind: int, nodes: Counts) -> None:
        scores = np.full(len(nodes), IMPOSSIBLE)
        fits = self._allowed[kind][nodes]
        fits = fits & (self.cpu[nodes] >= pod.cpu_milli) & (self.memory[nodes] >= pod.memory_mib)
        free = self.devices[nodes]
        if pod.share_milli:
            for device in range(free.shape[1]):
                self._try_device(pod, kind, nodes, free, fits, device, scores)
        else:
            some = np.flatnonzero(fits & ((free == MILLI).sum(1) >= pod.gpus))
            after = free[some]
            whole = after == MILLI
            after[whole & (whole.cumsum(1) <= pod.gpus)] = 0
            scores[some] = self.gain(nodes[some], after, self.cpu[nodes[some]] - pod.cpu_milli)
        found = scores > IMPOSSIBLE
        scores[found] = self.rounded(scores[found])
        scores[found] -= 1e-6 * free[found].sum(1) + 1e-10 * self.cpu[nodes[found]]
        self._scores[kind][nodes] = scores

    def _try_device(
        self,
        pod: Request,
        kind: int,
        nodes: Counts,
        free: Counts,
        fits: Bools,
        device: int,
        scores: Floats,
    ) -> None:
        some = np.flatnonzero(fits & (free[:, device] >= pod.share_milli))
        after = free[some]
        after[:, device] -= pod.share_milli
        gain = self.gain(nodes[some], after, self.cpu[nodes[some]] - pod.cpu_milli)
        before, chosen = scores[some], self._choices[kind][nodes[some]]
        tighter = free[some, device] < free[some, chosen]
        better = (gain > before + EXACT) | ((gain > before - EXACT) & tighter)
        scores[some[better]] = gain[better]
        self._choices[kind][nodes[some[better]]] = device

    def rounded(self, gain: Floats) -> Floats:
        """The score of a gain."""
        return gain


class BestFit(Peer):
    """Least left."""

    @override
    def gain(self, nodes: Counts, devices: Counts, cpu: Counts) -> Floats:
        """Minus what is left, as parts of the largest node; a share takes the tightest device."""
        largest = float(self.devices.shape[1] * MILLI)
        left: Floats = devices.sum(1) / largest + cpu / float(self.most_cpu)
        return -left


class FragmentationGradient(Peer):
    """Fragmentation gradient descent."""

    @override
    def learn(self, pods: list[tuple[Request, int]]) -> None:
        """The most frequent pods."""
        merged: dict[tuple[int, int, int, Where], int] = {}
        for pod, count in pods:
            key = (pod.cpu_milli, pod.gpus, pod.share_milli, pod.where)
            merged[key] = merged.get(key, 0) + count
        ranked = sorted(merged.items(), key=lambda one: -one[1])
        total, covered = sum(merged.values()), 0
        self._typical = []
        for key, count in ranked:
            self._typical.append((key, count))
            covered += count
            if covered >= TYPICAL * total:
                break
        self._parts = [count / covered for _, count in self._typical]
        self._may = [self.allowed(Request(where=key[3])) for key, _ in self._typical]

    @override
    def gain(self, nodes: Counts, devices: Counts, cpu: Counts) -> Floats:
        """The decrease of the fragment."""
        return self._fragment(nodes, self.devices[nodes], self.cpu[nodes]) - self._fragment(
            nodes, devices, cpu
        )

    @override
    def rounded(self, gain: Floats) -> Floats:
        """An integer from 0 to 100."""
        score: Floats = np.floor(100 / (1 + np.exp(-gain / MILLI)) + EXACT)
        return score

    def _fragment(self, nodes: Counts, devices: Counts, cpu: Counts) -> Floats:
        total = devices.sum(1)
        full = (devices == MILLI).sum(1)
        fragment = np.zeros(len(nodes))
        below: dict[int, Counts] = {MILLI: total - MILLI * full}
        for ((needs, whole, share, _), _), part, may in zip(
            self._typical, self._parts, self._may, strict=True
        ):
            if share and share not in below:
                below[share] = (devices * (devices < share)).sum(1)
            left = below[share or MILLI]
            fits = left < total if share else full >= whole
            if not whole and not share:
                fits = np.zeros(len(nodes), np.bool_)
            fragment += part * np.where(fits & (cpu >= needs) & may[nodes], left, total)
        return fragment
