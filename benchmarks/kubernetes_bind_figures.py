"""Figures of binding pods with Carrel's scheduler and with kube-scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.kubernetes_bind_load import Load
from benchmarks.report import Figure, median

GOAL: Final = 1.2
OURS, PEER = "carrel", "kube-scheduler"


@dataclass(slots=True)
class Run:
    """The result of one scheduler; times in seconds."""

    rate: float = 0.0
    latencies: list[float] = field(default_factory=list)
    churn: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0
    writes: float = 0.0

    def quantile(self, part: float) -> float:
        """A quantile of submit to bound."""
        ranked = sorted(self.latencies)
        return ranked[min(len(ranked) - 1, int(part * len(ranked)))]


def together(runs: Sequence[Run]) -> Run:
    """Several runs of one scheduler: the middle of each figure, all latencies."""
    return Run(
        rate=median([one.rate for one in runs]),
        latencies=[each for one in runs for each in one.latencies],
        churn=median([one.churn for one in runs]),
        cpu=median([one.cpu for one in runs]),
        memory=median([one.memory for one in runs]),
        writes=median([one.writes for one in runs]),
    )


def figures(ours: Run, peer: Run, load: Load) -> list[Figure]:
    """Beside each other; kube-scheduler cannot do what ours does with parts of GPUs."""
    least = GOAL * peer.rate
    rate = Figure("bound", ours.rate, "pods/s", f">= {least:.0f}", ours.rate >= least)
    if load.share:
        rate = Figure(f"bound with {load.share} of a GPU each", ours.rate, "pods/s", "-")
    rows = [
        rate,
        Figure("bound by kube-scheduler", peer.rate, "pods/s", "-"),
        Figure("API writes a pod", ours.writes, "", "<= 3", ours.writes <= 3.0),
        Figure("API writes a pod, kube-scheduler", peer.writes, "", "-"),
    ]
    if load.gang_size == 1:
        met = ours.churn <= peer.churn
        goal = "-" if load.share else f"<= {peer.churn:.2f}"
        rows.append(
            Figure("churn of 100, middle of five", ours.churn, "s", goal, met or bool(load.share))
        )
    for name, run in ((OURS, ours), (PEER, peer)):
        rows += [
            Figure(f"submit to bound p50, {name}", run.quantile(0.5), "s", "-"),
            Figure(f"submit to bound p99, {name}", run.quantile(0.99), "s", "-"),
            Figure(f"processor time, {name}", run.cpu, "s", "-"),
            Figure(f"most memory, {name}", run.memory, "MiB", "-"),
        ]
    return rows
