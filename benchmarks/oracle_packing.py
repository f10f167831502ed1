"""Packing of decisions against the optimum, on small random clusters.

The optimum is a mixed-integer program: each job is placed whole or not at all, each task on one
node, shares of a GPU on one device each; GPUs served are maximised. The core may not choose whom to
serve as freely: it goes by the order of service.
"""

import random
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    Event,
    NodeSet,
    Preemptibility,
    QueueSet,
    WorkloadQueued,
)
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI, OPEN
from carrel_scheduler.core.state import State

NOW = 1000.0
MOST_NODES, MOST_JOBS = 6, 12


@dataclass(frozen=True, slots=True)
class Cluster:
    """Empty nodes, and jobs that all wait at once."""

    nodes: tuple[NodeSet, ...]
    jobs: tuple[WorkloadQueued, ...]


def gpu_milli(request: Request) -> int:
    """Thousandths that a task takes."""
    return request.gpus * MILLI + request.share_milli


def random_cluster(seed: int) -> Cluster:
    """Up to six nodes, and jobs for some more than their GPUs."""
    rng = random.Random(seed)
    nodes = tuple(
        NodeSet(f"n{i}", rng.choice((2, 4, 4, 8)), rng.choice((16, 32, 64)) * MILLI, 256 * 1024)
        for i in range(rng.randint(2, MOST_NODES))
    )
    jobs = []
    for number in range(rng.randint(4, MOST_JOBS)):
        gpus = rng.choice((0, 0, 1, 1, 2, 4))
        request = Request(
            gpus=gpus,
            share_milli=0 if gpus else rng.choice((250, 300, 500, 600)),
            cpu_milli=rng.choice((1, 2, 4)) * MILLI * max(1, gpus),
            memory_mib=1024 * rng.choice((4, 8, 16)),
        )
        uid, tasks = f"j{number:02}", rng.choice((1, 1, 1, 2, 3))
        kind = Preemptibility.YES
        jobs.append(WorkloadQueued(uid, uid, "q", "u", 50, kind, request, tasks, number))
    return Cluster(nodes, tuple(jobs))


def decided(cluster: Cluster) -> int:
    """GPU thousandths that one decision serves."""
    state = State()
    events: list[Event] = [*cluster.nodes, QueueSet("q", OPEN), *cluster.jobs]
    for event in events:
        state.apply(event)
    by_uid = {job.uid: job for job in cluster.jobs}
    return sum(gpu_milli(by_uid[b.uid].request) for b in decide(state, NOW).bindings)


class _Program:
    """Variables and rows of the program, built up one by one."""

    def __init__(self) -> None:
        self.gain: list[float] = []
        self.most: list[float] = []
        self._rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, most: int, gain: float = 0.0) -> int:
        """An integer from 0 to ``most``."""
        self.gain.append(gain)
        self.most.append(most)
        return len(self.gain) - 1

    def row(self, terms: dict[int, float], low: float, high: float) -> None:
        """Low <= sum of terms <= high."""
        self._rows.append((terms, low, high))

    def solve(self) -> float:
        """The largest gain."""
        matrix = lil_matrix((len(self._rows), len(self.gain)))
        for number, (terms, _, _) in enumerate(self._rows):
            for variable, factor in terms.items():
                matrix[number, variable] = factor
        low, high = [row[1] for row in self._rows], [row[2] for row in self._rows]
        found = milp(
            -np.array(self.gain),
            integrality=np.ones(len(self.gain), np.int64),
            bounds=Bounds(0, np.array(self.most)),
            constraints=LinearConstraint(matrix.tocsr(), low, high),
        )
        if not found.success:
            raise RuntimeError(f"no optimum: {found.message}")
        return -float(found.fun)


def optimum(cluster: Cluster) -> int:
    """The most GPU thousandths that can be served."""
    program = _Program()
    cpu: list[dict[int, float]] = [{} for _ in cluster.nodes]
    memory: list[dict[int, float]] = [{} for _ in cluster.nodes]
    whole: list[dict[int, float]] = [{} for _ in cluster.nodes]
    shares: list[list[dict[int, float]]] = [
        [{} for _ in range(node.devices)] for node in cluster.nodes
    ]
    for job in cluster.jobs:
        request, here = job.request, {}
        served = program.variable(1, job.tasks * gpu_milli(request))
        for n, node in enumerate(cluster.nodes):
            count = program.variable(job.tasks)
            here[count] = 1.0
            cpu[n][count], memory[n][count] = request.cpu_milli, request.memory_mib
            if request.gpus:
                whole[n][count] = request.gpus
                continue
            on_devices = {count: -1.0}
            for device in range(node.devices):
                part = program.variable(job.tasks)
                on_devices[part] = 1.0
                shares[n][device][part] = request.share_milli
            program.row(on_devices, 0, 0)
        program.row({**here, served: -job.tasks}, 0, 0)
    for n, node in enumerate(cluster.nodes):
        program.row(cpu[n], -np.inf, node.cpu_milli)
        program.row(memory[n], -np.inf, node.memory_mib)
        for parts in shares[n]:
            shared = program.variable(1)
            whole[n][shared] = 1.0
            program.row({**parts, shared: -float(MILLI)}, -np.inf, 0)
        program.row(whole[n], -np.inf, node.devices)
    return round(program.solve())


def ratio(seed: int) -> float:
    """The decided amount over the possible one, 1 being the optimum."""
    cluster = random_cluster(seed)
    best = optimum(cluster)
    return decided(cluster) / best if best else 1.0
