"""A cluster full of 1-GPU jobs that other projects run beyond their quota, and a gang that claims.

Every node of 8 GPUs holds 8 jobs of random projects. The gang, of a department that has nothing
yet, asks for half of all nodes whole, within its quota. What the others may keep decides how hard
the question is.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.decision_cases.loading import Listing
from carrel_scheduler.core.events import (
    CheckpointSeen,
    NodeSet,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    WorkloadQueued,
)
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI, UNLIMITED, ResourceVector

NOW = 1_000_000.0
GPUS = 8
DEPARTMENTS = 4
PROJECTS = 20
LONGEST_RUN_S = 86_400
ONE_GPU = Request(gpus=1, cpu_milli=4000, memory_mib=32_768)
WHOLE_NODE = Request(gpus=GPUS, cpu_milli=32_000, memory_mib=262_144)
CLAIMER = "preemptor"

Owner = Callable[[int, int], str]
"""The project of the job on a node's device."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The cluster, and the gang whose arrival is decided upon."""

    listing: Listing
    gang: WorkloadQueued


def quota(gpus: int) -> ResourceVector:
    """GPUs that are guaranteed; CPU and memory are open."""
    return ResourceVector(gpus * MILLI, UNLIMITED, UNLIMITED)


def node(number: int) -> NodeSet:
    """A node of 8 GPUs."""
    return NodeSet(f"node-{number:05}", GPUS, 64_000, 1_048_576, gpu_memory_mib=81_920)


def gang(nodes: int) -> WorkloadQueued:
    """Half of the nodes, whole."""
    return WorkloadQueued(
        "gang",
        "gang",
        CLAIMER,
        "user",
        50,
        Preemptibility.YES,
        WHOLE_NODE,
        nodes // 2,
        created_at=NOW - 60,
    )


def filled(
    nodes: int,
    owner: Owner,
    rng: random.Random,
    *,
    fixed: Callable[[int, int], bool] = lambda _node, _device: False,
    interactive: bool = False,
) -> tuple[list[WorkloadQueued], list[TaskPlaced], list[CheckpointSeen]]:
    """A 1-GPU job on every device; half of them have saved their work since they started."""
    jobs, placed, saved = [], [], []
    for number in range(nodes):
        for device in range(GPUS):
            uid = f"job-{number:05}-{device}"
            started = NOW - rng.randrange(60, LONGEST_RUN_S)
            kind = Preemptibility.NO if fixed(number, device) else Preemptibility.YES
            jobs.append(
                WorkloadQueued(
                    uid,
                    uid,
                    owner(number, device),
                    "user",
                    50,
                    kind,
                    ONE_GPU,
                    created_at=started - 10,
                    interactive=interactive,
                )
            )
            placed.append(TaskPlaced(uid, 0, f"node-{number:05}", (device,), started))
            if rng.random() < 0.5:
                saved.append(CheckpointSeen(uid, started + rng.random() * (NOW - started)))
    return jobs, placed, saved


def tight(nodes: int, seed: int = 1) -> Claim:
    """Projects keep 40 to 50 % of what they hold: every budget binds, and yet there is a way."""
    rng = random.Random(seed)
    owners = [[rng.randrange(PROJECTS) for _ in range(GPUS)] for _ in range(nodes)]
    held = Counter(project for row in owners for project in row)
    kept = {p: round(held[p] * rng.uniform(0.40, 0.47)) for p in range(PROJECTS)}
    return _claim(nodes, owners, kept, rng)


def loose(nodes: int, seed: int = 1) -> Claim:
    """Projects keep a tenth: budgets do not bind, any nodes may be taken."""
    rng = random.Random(seed)
    owners = [[rng.randrange(PROJECTS) for _ in range(GPUS)] for _ in range(nodes)]
    held = Counter(project for row in owners for project in row)
    return _claim(nodes, owners, {p: held[p] // 10 for p in range(PROJECTS)}, rng)


def _claim(nodes: int, owners: list[list[int]], kept: dict[int, int], rng: random.Random) -> Claim:
    queues = department_tree(nodes, kept)
    jobs, placed, saved = filled(nodes, lambda n, d: f"project-{owners[n][d]:02}", rng)
    listing = Listing([node(i) for i in range(nodes)], queues, (), (), jobs, placed, saved)
    return Claim(listing, gang(nodes))


def department_tree(
    nodes: int, kept: dict[int, int], department: dict[int, int] | None = None
) -> list[QueueSet]:
    """Projects with these quotas in departments that guarantee their sum, or what is given."""
    sums: Counter[int] = Counter()
    for project, gpus in kept.items():
        sums[project % DEPARTMENTS] += gpus
    found = [
        QueueSet(f"department-{d}", quota((department or sums)[d])) for d in range(DEPARTMENTS)
    ]
    found += [
        QueueSet(f"project-{p:02}", quota(gpus), parent=f"department-{p % DEPARTMENTS}")
        for p, gpus in sorted(kept.items())
    ]
    claimed = quota(nodes // 2 * GPUS)
    return [*found, QueueSet("claiming", claimed), QueueSet(CLAIMER, claimed, parent="claiming")]
