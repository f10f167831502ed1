"""Clusters of 1,000 nodes on which work is moved, grows and shrinks, or has to lie together."""

from dataclasses import dataclass

from benchmarks.decision_cases.borrowed import GPUS, NOW, node, quota
from benchmarks.decision_cases.loading import Listing
from carrel_scheduler.core.events import (
    NodeSet,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TopologySet,
    WorkloadQueued,
)
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.requests import Request

NODES = 1000
GANGS, GANG_TASKS = 41, 10
TOPOLOGY_TASKS = 512
ELASTIC_JOBS, ELASTIC_LEAST, ELASTIC_MOST = 50, 8, 64
RACK, BLOCK, ZONE = 10, 100, 600
LEVELS = ("zone", "block", "rack")


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster, and the workloads whose arrival is decided upon."""

    listing: Listing
    coming: tuple[WorkloadQueued, ...]


def request(gpus: int) -> Request:
    """Whole GPUs with their part of a node."""
    return Request(gpus=gpus, cpu_milli=6000 * gpus, memory_mib=65_536 * gpus)


def scattered(nodes: int) -> Case:
    """Six of eight GPUs of every node in use by 2-GPU jobs; 41 gangs want ten times four GPUs."""
    queues = [QueueSet("department", quota(nodes * GPUS))]
    queues += [QueueSet(f"project-{p}", quota(nodes * 2), parent="department") for p in range(4)]
    jobs, placed = [], []
    for number in range(nodes):
        for part in range(3):
            uid = f"job-{number:05}-{part}"
            started = NOW - 60 - (number * 7919 + part * 104_729) % 86_400
            jobs.append(_job(uid, f"project-{(number + part) % 4}", request(2), started - 10))
            devices = (2 * part, 2 * part + 1)
            placed.append(TaskPlaced(uid, 0, node(number).name, devices, started))
    coming = tuple(
        _job(f"gang-{g:02}", f"project-{g % 4}", request(4), NOW - 100 + g, tasks=GANG_TASKS)
        for g in range(GANGS)
    )
    listing = Listing([node(i) for i in range(nodes)], queues, (), (), jobs, placed)
    return Case(listing, coming)


def idle_half(nodes: int) -> Case:
    """Half of the nodes are idle; fifty elastic trainings at their minimum wait to grow."""
    queues = [QueueSet("department", quota(nodes * GPUS))]
    queues += [QueueSet(f"project-{p}", quota(nodes), parent="department") for p in range(8)]
    jobs, placed = [], []
    for number in range(ELASTIC_JOBS):
        uid = f"elastic-{number:02}"
        leaf = Group(requests=(request(1),) * ELASTIC_MOST, min_tasks=ELASTIC_LEAST)
        jobs.append(_job(uid, f"project-{number % 8}", request(1), NOW - 5000 + number, gang=leaf))
        placed += [TaskPlaced(uid, i, node(number).name, (i,), NOW - 4000) for i in range(GPUS)]
    for number in range(ELASTIC_JOBS, nodes // 2):
        uid = f"whole-{number:05}"
        jobs.append(_job(uid, f"project-{number % 8}", request(GPUS), NOW - 6000))
        placed.append(TaskPlaced(uid, 0, node(number).name, tuple(range(GPUS)), NOW - 5000))
    listing = Listing([node(i) for i in range(nodes)], queues, (), (), jobs, placed)
    return Case(listing, ())


def racks(nodes: int, *, whole: bool) -> Case:
    """Racks, blocks and zones with some nodes in use; a gang of 512 has to stay together.

    Args:
        nodes: of the cluster.
        whole: tasks of 8 GPUs inside a zone of 600 nodes; else of 1 GPU inside a block of 100.
    """
    queues = [QueueSet("department", quota(nodes * GPUS))]
    queues.append(QueueSet("project", quota(nodes * GPUS), parent="department"))
    jobs, placed = [], []
    for number in range(0, nodes, 7):
        size = GPUS if whole else 1 + number % GPUS
        uid = f"job-{number:05}"
        jobs.append(_job(uid, "project", request(size), NOW - 5000))
        placed.append(TaskPlaced(uid, 0, node(number).name, tuple(range(size)), NOW - 4000))
    level = Level(required="zone" if whole else "block", preferred="rack")
    leaf = Group(requests=(request(GPUS if whole else 1),) * TOPOLOGY_TASKS, level=level)
    coming = (_job("gang", "project", request(1), NOW - 10, gang=leaf),)
    machines = [_in_a_rack(number) for number in range(nodes)]
    topologies = (TopologySet("network", LEVELS),)
    return Case(Listing(machines, queues, topologies, (), jobs, placed), coming)


def _in_a_rack(number: int) -> NodeSet:
    plain = node(number)
    labels = (
        ("block", f"b{number // BLOCK:03}"),
        ("rack", f"r{number // RACK:04}"),
        ("zone", f"z{number // ZONE:02}"),
    )
    return NodeSet(
        plain.name,
        plain.devices,
        plain.cpu_milli,
        plain.memory_mib,
        gpu_memory_mib=plain.gpu_memory_mib,
        labels=labels,
    )


def _job(
    uid: str,
    project: str,
    asked: Request,
    created_at: float,
    *,
    tasks: int = 1,
    gang: Group | None = None,
) -> WorkloadQueued:
    return WorkloadQueued(
        uid,
        uid,
        project,
        "user",
        50,
        Preemptibility.YES,
        asked,
        tasks,
        created_at=created_at,
        gang=gang,
    )
