"""A forecast on the large cluster: whether a job would start, and what would be evicted.

It is asked on the live state: the job is put in, everything is decided, what becomes of it is read,
and the job is taken out again. Every question is about another job of another project and at
another time, so none is answered by the one before. Twice: once the last plan has been carried out,
and amid a hundred changes that no cycle has decided upon yet, so that the question has to start
all that comes before its own job.
"""

from collections.abc import Iterator

from benchmarks.decision_cases import steady
from benchmarks.decision_cases.cycle import Cluster
from benchmarks.decision_cases.timing import figures, repeat
from benchmarks.report import Figure
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import WorkloadQueued
from carrel_scheduler.core.speculation import what_if
from carrel_scheduler.core.state import State

GOAL_MS = 5.0
SETTLING = 5
Question = tuple[WorkloadQueued, float]


def run(nodes: int, tasks: int, repeats: int) -> list[Figure]:
    """The figures of one size."""
    cluster = Cluster(steady.listing(nodes, tasks))
    _settle(cluster)
    label = f"{nodes:,} nodes, {tasks:,} tasks, one what-if"
    rows = _figures(label, cluster, repeats, GOAL_MS)
    for event in cluster.changes():
        cluster.state.apply(event)
    return [*rows, *_figures(f"{label} amid 100 changes", cluster, repeats, None)]


def _figures(label: str, cluster: Cluster, repeats: int, goal: float | None) -> list[Figure]:
    questions = _questions(cluster.now)
    asked = [next(questions)]

    def prepare() -> None:
        asked[0] = next(questions)

    def work() -> None:
        _ask(cluster.state, *asked[0])

    return figures(label, repeat(prepare, work, repeats), goal)


def _questions(now: float) -> Iterator[Question]:
    """Jobs like those that come, one a second."""
    arrivals = steady.Arrivals(1, "asked")
    while True:
        now += 1.0
        yield arrivals.next(now), now


def _ask(state: State, queued: WorkloadQueued, now: float) -> None:
    what_if(state, queued, now)


def _settle(cluster: Cluster) -> None:
    """A few cycles, so that what could start at once has started."""
    for _ in range(SETTLING):
        for event in cluster.changes():
            cluster.state.apply(event)
        for event in cluster.consequences(decide(cluster.state, cluster.now)):
            cluster.state.apply(event)
