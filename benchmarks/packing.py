"""Packing: how much of a cluster's GPUs the core fills, against best fit and FGD on the same pods.

The openb protocol: pods arrive in random order until 130 % of the GPUs are asked for; what does not
fit is dropped. Reported are the GPUs allocated at the end, and at the first rejected GPU pod as a
part of the linear-programming bound. With ``--departures 0.95`` also a long run in which pods end
and 95 % of the GPUs are asked for on average: the part of the demand that was lost. The core learns
what is typical from the arrivals and has one setting for both; FGD is told the trace beforehand.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.openb import (
    BATCH,
    Arrivals,
    by_count,
    filling,
    gpu_milli,
    read_nodes,
    read_pods,
    steady,
)
from benchmarks.packing_bound import Bound
from benchmarks.packing_core import CorePolicy
from benchmarks.packing_fgd import FragmentationGradient
from benchmarks.packing_peers import BestFit
from benchmarks.report import Figure, show
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI

FIRST_SEED = 42
NO_GOAL = "-"
PUBLISHED = {
    "default": 95.39,
    "cpu250": 93.41,
    "gpushare40": 94.15,
    "gpuspec33": 94.55,
    "multigpu20": 95.65,
}
"""The published result of FGD at 130 %, for ten orders."""
LEAST_DEFAULT = 95.5
NEAR_BOUND = 98.7
LEAST_RATE = 5_000
CORE, FGD = "core", "FGD"


class Policy(Protocol):
    """Places pods in their order."""

    def place(self, pods: Sequence[Request]) -> Sequence[Any]:
        """Place pods: their places, ``None`` for each that does not fit."""

    def finish(self, place: Any) -> None:
        """The pod placed there ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: per cent of GPUs, of demand, decisions per processor second."""

    allocated: float
    first_rejected: float
    lost: float
    rate: float


def run(policy: Policy, arrivals: Arrivals, capacity: int) -> Outcome:
    """Let pods arrive; ``capacity`` in GPU thousandths."""
    used = lost = offered = 0
    first: int | None = None
    ending: dict[int, list[tuple[Any, int]]] = {}
    begin = time.thread_time()
    for start in range(0, len(arrivals.pods), BATCH):
        for place, milli in ending.pop(start, ()):
            policy.finish(place)
            used -= milli
        pods = arrivals.pods[start : start + BATCH]
        for number, (pod, place) in enumerate(zip(pods, policy.place(pods), strict=True), start):
            wanted = gpu_milli(pod)
            counted = wanted if number >= arrivals.counted_from else 0
            offered += counted
            if place is not None:
                used += wanted
                if arrivals.until is not None:
                    ending.setdefault(arrivals.until[number], []).append((place, wanted))
                continue
            lost += counted
            if wanted and first is None:
                first = used
    rate = len(arrivals.pods) / (time.thread_time() - begin)
    reached = used if first is None else first
    return Outcome(100 * used / capacity, 100 * reached / capacity, 100 * lost / offered, rate)


def mean(values: list[float]) -> float:
    """The arithmetic mean."""
    return sum(values) / len(values)


@dataclass(frozen=True, slots=True)
class Means:
    """Means of one policy on one trace."""

    allocated: float
    of_bound: float
    lost: float
    rate: float


def measure_trace(
    nodes: list[NodeSet], pods: list[Request], seeds: int, load: float
) -> dict[str, Means]:
    """Measure all policies on one trace."""
    capacity = sum(node.devices for node in nodes) * MILLI
    bound, numbers = Bound(nodes), range(FIRST_SEED, FIRST_SEED + seeds)
    orders = [filling(pods, capacity, seed) for seed in numbers]
    most = mean([bound.first_rejection(order.pods) for order in orders])
    lives = [steady(pods, capacity, load, seed) for seed in numbers] if load else []
    policies: dict[str, Callable[[], Policy]] = {
        CORE: lambda: CorePolicy(nodes),
        "best fit": lambda: BestFit(nodes),
        FGD: lambda: FragmentationGradient(nodes, by_count(pods)),
    }
    found = {}
    for name, policy in policies.items():
        fills = [run(policy(), order, capacity) for order in orders]
        longs = [run(policy(), order, capacity) for order in lives]
        found[name] = Means(
            mean([one.allocated for one in fills]),
            100 * mean([one.first_rejected for one in fills]) / most,
            mean([one.lost for one in longs]) if longs else 0.0,
            mean([one.rate for one in fills + longs]),
        )
    return found


def figures_of(traces: dict[str, dict[str, Means]], load: float) -> list[Figure]:
    """The figures with their goals."""
    figures = [
        figure
        for trace, by_policy in traces.items()
        for policy, one in by_policy.items()
        for figure in _of_one(trace, policy, one, by_policy[FGD], load)
    ]
    runs = list(traces.values())
    slowest = min(one[CORE].rate for one in runs)
    goal, met = f"at least {LEAST_RATE}", slowest >= LEAST_RATE
    figures.append(Figure("slowest core run", slowest, "decisions/s", goal, met))
    for policy in runs[0]:
        alloc = mean([one[policy].allocated for one in runs])
        figures.append(Figure(f"mean: {policy} at 130 %", alloc, "%", NO_GOAL))
    if load:
        half = mean([one[FGD].lost for one in runs]) / 2
        lost = mean([one[CORE].lost for one in runs])
        goal = f"half of FGD's, {half:.2f}"
        figures.append(Figure("mean: core lost", lost, "% of demand", goal, lost <= half))
    return figures


def _of_one(trace: str, policy: str, one: Means, fgd: Means, load: float) -> list[Figure]:
    """The figures of one policy on one trace; only the core has goals."""
    name, core = f"{trace}: {policy}", policy == CORE
    least = max(fgd.allocated, PUBLISHED.get(trace, 0.0))
    if trace == "default":
        least = max(least, LEAST_DEFAULT)
    filled = f"FGD, at least {least:.2f}" if core else NO_GOAL
    near = f"at least {NEAR_BOUND}" if core else NO_GOAL
    figures = [
        Figure(f"{name} at 130 %", one.allocated, "%", filled, not core or one.allocated >= least),
        Figure(
            f"{name} first rejection",
            one.of_bound,
            "% of bound",
            near,
            not core or one.of_bound >= NEAR_BOUND,
        ),
    ]
    if load:
        figures.append(Figure(f"{name} lost at {load:.0%}", one.lost, "% of demand", NO_GOAL))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=Path, required=True)
    parser.add_argument("--pods", type=Path, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--departures", type=float, default=0.0, metavar="LOAD")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    nodes = read_nodes(arguments.nodes)
    traces = {
        path.stem.removeprefix("openb_pod_list_"): measure_trace(
            nodes, read_pods(path), arguments.seeds, arguments.departures
        )
        for path in arguments.pods
    }
    show("Packing", figures_of(traces, arguments.departures), as_json=arguments.json)


if __name__ == "__main__":
    main()
