"""A tenth of the running jobs on their second choice of GPU type, to move to a better one.

The cluster lives as that of ``cycle``. In each decision the search for such a move is timed by
itself, so that a decision is compared with the very same one without it. Of the better type either
nothing is ever free, as is usual of GPUs that everybody prefers, or as much as of all others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.decision_cases import steady
from benchmarks.decision_cases.cycle import Cluster
from benchmarks.decision_cases.loading import Listing
from benchmarks.decision_cases.timing import Times, collecting_rarely
from benchmarks.report import Figure, median
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.decide import ACTIONS, Action, decide
from carrel_scheduler.core.events import (
    Event,
    NodeSet,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    WorkloadQueued,
)
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI, UNLIMITED, ResourceVector

PART = 10
"""One in so many running jobs would move; the nodes of the better type are so many times fewer."""
MODEL = "gpu-model"
FULL, BUSY = "h100", "a100"
"""The better type, of which nothing is free, or some comes free now and then."""
GOAL = 1.1


def full_type(nodes: int, tasks: int) -> tuple[Listing, list[str]]:
    """Nodes of a better type that others hold; the uids of these, which never end."""
    listing = with_preference(steady.listing(nodes, tasks), FULL)
    count, gpus = nodes // PART, steady.GPUS
    names = [f"full-{number:05}" for number in range(count)]
    whole = Request(gpus=gpus, cpu_milli=steady.NODE_CPU)
    owners = QueueSet("owners", ResourceVector(count * gpus * MILLI, UNLIMITED, UNLIMITED))
    machines = [
        NodeSet(name, gpus, steady.NODE_CPU, steady.NODE_MEMORY, labels=((MODEL, FULL),))
        for name in names
    ]
    jobs = [
        WorkloadQueued(name, name, owners.name, "user", 50, Preemptibility.NO, whole)
        for name in names
    ]
    placed = [TaskPlaced(name, 0, name, tuple(range(gpus)), steady.NOW - 60) for name in names]
    made = replace(
        listing,
        nodes=(*listing.nodes, *machines),
        queues=(*listing.queues, owners),
        workloads=(*listing.workloads, *jobs),
        placed=(*listing.placed, *placed),
    )
    return made, names


def with_preference(listing: Listing, better: str) -> Listing:
    """The same, but that a tenth of the running jobs would rather run on GPUs of another type."""
    model = {node.name: dict(node.labels)[MODEL] for node in listing.nodes}
    node_of = {one.uid: one.node for one in listing.placed if one.devices}
    may = [uid for uid, node in node_of.items() if model[node] != better]
    chosen = set(_evenly(may, len(listing.placed) // PART))
    where = NodeConstraint(
        labels=((MODEL, frozenset({better, *model.values()})),),
        preferred=((MODEL, frozenset({better})),),
    )
    return replace(
        listing,
        workloads=[
            replace(job, request=replace(job.request, where=where), moves_to_preferred=True)
            if job.uid in chosen
            else job
            for job in listing.workloads
        ],
    )


def _evenly(uids: Sequence[str], count: int) -> Iterator[str]:
    return (uids[number * len(uids) // count] for number in range(count))


class TimedAction:
    """An action of decisions, timed.

    Args:
        action: which.
        times: of its runs.
    """

    def __init__(self, action: Action, times: Times) -> None:
        self._action, self._times = action, times

    def __call__(self, cycle: Cycle) -> None:
        """Run it."""
        with self._times.one():
            self._action(cycle)


def run(nodes: int, tasks: int, cycles: int, warm_up: int) -> list[Figure]:
    """The figures of one size."""
    listing, lasting = full_type(nodes, tasks)
    found = _figures("nothing better free", Cluster(listing, lasting=lasting), cycles, warm_up)
    listing = with_preference(steady.listing(nodes, tasks), BUSY)
    return [*found, *_figures("some comes free", Cluster(listing), cycles, warm_up)]


def _figures(label: str, cluster: Cluster, cycles: int, warm_up: int) -> list[Figure]:
    deciding, improving, moved = Times(), Times(), 0
    actions: list[Action] = [*ACTIONS[:-1], TimedAction(ACTIONS[-1], improving)]
    pending: list[Event] = []
    would_move = len(cluster.state.improvable)
    with collecting_rarely():
        for _ in range(cycles + warm_up):
            for event in (*pending, *cluster.changes()):
                cluster.state.apply(event)
            with deciding.one():
                plan = decide(cluster.state, cluster.now, actions)
                _ = (plan.bindings, plan.evictions, plan.nominations)
            moved += sum(one.reason.token is Token.IMPROVED for one in plan.evictions)
            pending = cluster.consequences(plan)
    whole, part = deciding.cpu[warm_up:], improving.cpu[warm_up:]
    ratio = median([one / (one - own) for one, own in zip(whole, part, strict=True)])
    goal = label == "nothing better free"
    return [
        Figure(
            f"{label}: decision, to one without moves",
            ratio,
            "x",
            f"<= {GOAL:g}" if goal else "-",
            not goal or ratio <= GOAL,
        ),
        Figure(f"{label}: deciding, median processor time", median(whole), "ms", "-"),
        Figure(f"{label}: search for a move, median processor time", median(part), "ms", "-"),
        Figure(f"{label}: would move, at first", would_move, "jobs", "-"),
        Figure(f"{label}: moved a cycle", moved / (cycles + warm_up), "jobs", "-"),
    ]
