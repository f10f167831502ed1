"""A large cluster in its steady state: 93 % of the GPUs in use, ten thousand jobs waiting.

Thirty-five tasks run on each node of 8 GPUs: whole GPUs, shares of 0.1 to 0.9, and work without
GPUs. What is free is stranded: GPUs without CPU beside them, remainders of shared GPUs. Jobs belong
to 200 projects in 20 departments, which hold a little less or more than their quotas; those that
wait are of 500 classes. Everything follows from a seed.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.decision_cases.loading import Listing
from carrel_scheduler.core.events import (
    NodeSet,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    WorkloadQueued,
)
from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI, UNLIMITED, ResourceVector

NOW = 1_000_000.0
GPUS = 8
NODE_CPU = 128_000
NODE_MEMORY = 1_048_576
DEPARTMENTS = 20
PROJECTS = 200
CLASSES = 500
WAITING = 10_000
BUSY = 0.944
"""The part of all GPUs in use; with what is free of shared ones 93 % are in use."""
OWN_CLASSES = 20
PRIORITIES = (50, 50, 50, 75, 100)
STEP_CPU = 500
A100 = (("gpu-model", frozenset({"a100"})),)


@dataclass(frozen=True, slots=True)
class Kinds:
    """Requests by the form of their GPU need."""

    whole: tuple[Request, ...]
    shares: tuple[Request, ...]
    without: tuple[Request, ...]

    @property
    def every(self) -> tuple[Request, ...]:
        """All requests."""
        return (*self.whole, *self.shares, *self.without)


def kinds(rng: random.Random) -> Kinds:
    """Five hundred classes."""
    wheres = (NodeConstraint(), NodeConstraint(), NodeConstraint(labels=A100))
    found: dict[Request, None] = {}
    while len(found) < CLASSES:
        form = rng.choices(("whole", "share", "none"), (4, 3, 3))[0]
        gpus = rng.choices((1, 2, 4, 8), (6, 3, 2, 1))[0] if form == "whole" else 0
        share = 50 * rng.randint(2, 18) if form == "share" else 0
        cpu = STEP_CPU * rng.randint(1, 16) * max(1, gpus)
        memory = 1024 * rng.randint(1, 16) * max(1, gpus)
        request = Request(
            gpus=gpus, share_milli=share, cpu_milli=cpu, memory_mib=memory, where=rng.choice(wheres)
        )
        found[request] = None
    return Kinds(
        tuple(request for request in found if request.gpus),
        tuple(request for request in found if request.share_milli),
        tuple(request for request in found if not (request.gpus or request.share_milli)),
    )


def listing(nodes: int, tasks: int, seed: int = 1) -> Listing:
    """The cluster, ``tasks`` running on it and ``WAITING`` jobs."""
    rng = random.Random(seed)
    machines = [_node(number) for number in range(nodes)]
    jobs: list[WorkloadQueued] = []
    placed: list[TaskPlaced] = []
    held: Counter[str] = Counter()
    for number, machine in enumerate(machines):
        count = tasks * (number + 1) // nodes - tasks * number // nodes
        for request, devices in _filled(machine, count, rng):
            project = project_name(rng.randrange(PROJECTS))
            uid = f"run-{len(jobs):06}"
            started = NOW - rng.randrange(60, 86_400)
            jobs.append(job(uid, project, request, rng, started - 60))
            placed.append(TaskPlaced(uid, 0, machine.name, devices, started))
            held[project] += request.gpus * MILLI + request.share_milli
    arrivals = Arrivals(seed, "waits")
    jobs += [arrivals.next(NOW - rng.randrange(1, 86_400)) for _ in range(WAITING)]
    return Listing(machines, _queues(nodes, held, rng), (), (), jobs, placed)


def project_name(number: int) -> str:
    """Ten projects to a department."""
    return f"project-{number:03}"


class Arrivals:
    """Jobs that come, one after the other; a project has its own twenty kinds."""

    def __init__(self, seed: int, prefix: str) -> None:
        """``seed``: of the cluster; ``prefix``: of the uids, and what is drawn follows from it."""
        self._rng, self._prefix, self._count = random.Random(f"{seed} {prefix}"), prefix, 0
        every, own = kinds(random.Random(seed)).every, random.Random(seed + 1)
        self._of = [own.sample(every, OWN_CLASSES) for _ in range(PROJECTS)]

    def next(self, created_at: float) -> WorkloadQueued:
        """The next one."""
        self._count += 1
        rng = self._rng
        number = rng.randrange(PROJECTS)
        request = rng.choice(self._of[number])
        return job(
            f"{self._prefix}-{self._count:06}", project_name(number), request, rng, created_at
        )


def job(
    uid: str, project: str, request: Request, rng: random.Random, created_at: float
) -> WorkloadQueued:
    """A workload of one task; one in twenty may not be stopped."""
    kind = Preemptibility.NO if rng.random() < 0.05 else Preemptibility.YES
    priority = rng.choice(PRIORITIES)
    return WorkloadQueued(uid, uid, project, "user", priority, kind, request, created_at=created_at)


def _node(number: int) -> NodeSet:
    model = "a100" if number % 4 == 0 else "v100"
    labels = (("gpu-model", model),)
    return NodeSet(f"node-{number:05}", GPUS, NODE_CPU, NODE_MEMORY, labels=labels)


def _filled(
    machine: NodeSet, count: int, rng: random.Random
) -> Iterator[tuple[Request, tuple[int, ...]]]:
    """So many tasks on one node; the last ones take the CPU that is left."""
    left, made = machine.cpu_milli, 0
    free = [device for device in range(GPUS) if rng.random() < BUSY]
    while free:
        if rng.random() < 0.5:
            size = min(rng.choice((1, 1, 2, 4)), len(free))
            devices = [tuple(free.pop(0) for _ in range(size))]
            asked = [Request(gpus=size, cpu_milli=3000 * size, memory_mib=16_384 * size)]
        else:
            device = (free.pop(0),)
            parts = rng.choice(((500, 500), (300, 300, 400), (200, 350, 400), (100, 850), (900,)))
            devices = [device] * len(parts)
            asked = [Request(share_milli=part, cpu_milli=2000, memory_mib=8192) for part in parts]
        for request, where in zip(asked, devices, strict=True):
            left -= request.cpu_milli
            made += 1
            yield request, where
    rest = count - made
    for number in range(rest):
        cpu = left // (rest - number) // STEP_CPU * STEP_CPU
        if number == rest - 1:
            cpu = left
        left -= cpu
        yield Request(cpu_milli=cpu, memory_mib=8192), ()


def _queues(nodes: int, held: Counter[str], rng: random.Random) -> list[QueueSet]:
    """Quotas near what is held, together all GPUs."""
    names = [project_name(number) for number in range(PROJECTS)]
    wished = {name: held[name] * rng.uniform(0.9, 1.3) for name in names}
    scale = nodes * GPUS * MILLI / sum(wished.values())
    quotas = {name: int(wished[name] * scale) // MILLI * MILLI for name in names}
    parents: Counter[int] = Counter()
    for number, name in enumerate(names):
        parents[number % DEPARTMENTS] += quotas[name]
    found = [QueueSet(f"department-{d:02}", _quota(parents[d])) for d in range(DEPARTMENTS)]
    return found + [
        QueueSet(name, _quota(quotas[name]), parent=f"department-{number % DEPARTMENTS:02}")
        for number, name in enumerate(names)
    ]


def _quota(gpu_milli: int) -> ResourceVector:
    return ResourceVector(gpu_milli, UNLIMITED, UNLIMITED)
