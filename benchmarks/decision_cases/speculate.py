"""One what-if on the large cluster: would this job start, and what would give way for it?

It is asked on the live state: the job is put in, everything is decided, what becomes of it is read,
and the job is taken out again.
"""

from benchmarks.decision_cases.cycle import Cluster
from benchmarks.decision_cases.timing import figures, repeat
from benchmarks.report import Figure
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Preemptibility, WorkloadQueued
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.speculation import what_if

GOAL_MS = 5.0
SETTLING = 5


def run(nodes: int, tasks: int, repeats: int) -> list[Figure]:
    """The figures of one size."""
    cluster = Cluster(nodes, tasks)
    _settle(cluster)
    state, now = cluster.state, cluster.now
    asked = WorkloadQueued(
        "what-if",
        "what-if",
        "project-000",
        "user",
        100,
        Preemptibility.YES,
        Request(gpus=1, cpu_milli=4000, memory_mib=16_384),
        created_at=now,
    )

    measured = repeat(lambda: None, lambda: what_if(state, asked, now), repeats)
    return figures(f"{nodes:,} nodes, {tasks:,} tasks, one what-if", measured, GOAL_MS)


def _settle(cluster: Cluster) -> None:
    """A few cycles, so that what could start at once has started."""
    for _ in range(SETTLING):
        plan = decide(cluster.state, cluster.now)
        for event in [*cluster.consequences(plan), *cluster.happenings()]:
            cluster.state.apply(event)
