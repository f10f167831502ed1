"""The openb protocol: nodes and pods from the CSV files of the trace, and orders of arrival.

A pod is one task. Its allowed GPU models become a required node label, its share of a GPU
thousandths of one device.
"""

import csv
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.requests import ANYWHERE, NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI

MODEL = "gpu-model"
FILL = 1.3
STEADY_ARRIVALS = 40_000
STEADY_WARM_UP = 16_000
BATCH = 64
"""The number of pods that arrive between two decisions; only there do pods end."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The arrivals of a run.

    Attributes:
        pods: in the order of arrival.
        until: of each pod, how many arrivals there have been when it ends, a multiple of
            ``BATCH``; ``None``: never ends.
        counted_from: arrivals before this one only warm up.
    """

    pods: tuple[Request, ...]
    until: tuple[int, ...] | None = None
    counted_from: int = 0


def gpu_milli(pod: Request) -> int:
    """Thousandths of GPUs that a pod takes."""
    return pod.gpus * MILLI + pod.share_milli


def read_nodes(path: Path) -> list[NodeSet]:
    """The GPU nodes of a node list."""
    with path.open(newline="") as lines:
        return [
            NodeSet(
                name=row["sn"],
                devices=int(row["gpu"]),
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
                labels=((MODEL, row["model"]),),
            )
            for row in csv.DictReader(lines)
            if int(row["gpu"])
        ]


def read_pods(path: Path) -> list[Request]:
    """The pods of a pod list, in its order."""
    with path.open(newline="") as lines:
        return [_pod(row) for row in csv.DictReader(lines)]


def _pod(row: dict[str, str]) -> Request:
    number, milli, spec = int(row["num_gpu"]), int(row["gpu_milli"]), row.get("gpu_spec") or ""
    where = NodeConstraint(labels=((MODEL, frozenset(spec.split("|"))),)) if spec else ANYWHERE
    share = number == 1 and milli < MILLI
    return Request(
        gpus=0 if share else number,
        share_milli=milli if share else 0,
        cpu_milli=int(row["cpu_milli"]),
        memory_mib=int(row["memory_mib"]),
        where=where,
    )


def filling(pods: list[Request], capacity: int, seed: int) -> Arrivals:
    """The list shuffled, then drawn from, until 1.3 times the capacity has arrived.

    Args:
        pods: the list.
        capacity: GPU thousandths of the cluster.
        seed: of the order.
    """
    rng = random.Random(seed)
    shuffled = list(pods)
    rng.shuffle(shuffled)
    chosen: list[Request] = []
    demand = 0
    while demand < FILL * capacity:
        pod = shuffled[len(chosen)] if len(chosen) < len(shuffled) else rng.choice(pods)
        chosen.append(pod)
        demand += gpu_milli(pod)
    return Arrivals(tuple(chosen))


def steady(pods: list[Request], capacity: int, load: float, seed: int) -> Arrivals:
    """Pods that come and go: exponential lifetimes such that ``load`` of the GPUs is asked for."""
    rng = random.Random(seed)
    mean = sum(gpu_milli(pod) for pod in pods) / len(pods)
    lifetime = load * capacity / mean
    chosen = tuple(rng.choice(pods) for _ in range(STEADY_ARRIVALS))
    ends = [i + rng.expovariate(1 / lifetime) for i in range(STEADY_ARRIVALS)]
    until = tuple((int(end) // BATCH + 1) * BATCH for end in ends)
    return Arrivals(chosen, until, STEADY_WARM_UP)


def by_count(pods: list[Request]) -> list[tuple[Request, int]]:
    """Distinct pods with their number, the most frequent first."""
    return Counter(pods).most_common()
