"""Work that is moved, grows, lies together: one decision each on 1,000 nodes."""

from collections.abc import Callable
from functools import partial

from benchmarks.decision_cases import borrowed, rearranged
from benchmarks.decision_cases.loading import load
from benchmarks.decision_cases.reclaim import read
from benchmarks.decision_cases.timing import Times, figures, repeat
from benchmarks.report import Figure
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import WorkloadRemoved
from carrel_scheduler.core.state import State

CONSOLIDATE_GOAL_MS = 100.0
TOPOLOGY_GOAL_MS = 20.0


def consolidate(nodes: int, repeats: int) -> list[Figure]:
    """41 gangs of ten find room because what runs moves together."""
    tasks = rearranged.GANGS * rearranged.GANG_TASKS
    label = f"{nodes:,} nodes, {rearranged.GANGS} gangs of {rearranged.GANG_TASKS}"
    goal = CONSOLIDATE_GOAL_MS if nodes == rearranged.NODES else None
    measured, found = times(lambda: rearranged.scattered(nodes), repeats)
    held = found[2] - found[1]
    return [
        *figures(label, measured, goal),
        Figure(f"{label}: moved", found[1], "jobs", "-"),
        Figure(f"{label}: gangs' places held", held, "tasks", f"= {tasks}", held == tasks),
    ]


def elastic(nodes: int, repeats: int) -> list[Figure]:
    """Fifty elastic trainings grow into the idle half of the cluster."""
    wanted = rearranged.ELASTIC_JOBS * (rearranged.ELASTIC_MOST - rearranged.ELASTIC_LEAST)
    label = f"{nodes:,} nodes, {rearranged.ELASTIC_JOBS} trainings grow by {wanted}"
    measured, found = times(lambda: rearranged.idle_half(nodes), repeats)
    room = min(wanted, (nodes - nodes // 2) * borrowed.GPUS)
    grown = Figure(f"{label}: started", found[0], "tasks", f"= {room}", found[0] == room)
    return [*figures(label, measured, None), grown]


def topology(nodes: int, repeats: int) -> list[Figure]:
    """A gang of 512 that has to stay together, of small tasks and of whole nodes."""
    rows: list[Figure] = []
    tasks = rearranged.TOPOLOGY_TASKS
    for name, whole in (("1 GPU each in a block of 100", False), ("whole nodes in a zone", True)):
        label = f"{nodes:,} nodes, gang of {tasks}, {name}"
        measured, found = times(partial(rearranged.racks, nodes, whole=whole), repeats)
        goal = TOPOLOGY_GOAL_MS if nodes == rearranged.NODES else None
        started = Figure(f"{label}: started", found[0], "tasks", f"= {tasks}", found[0] == tasks)
        rows += [*figures(label, measured, goal), started]
    return rows


def times(make: Callable[[], rearranged.Case], repeats: int) -> tuple[Times, tuple[int, int, int]]:
    """Times of a decision on a case, and what the last one decided."""
    case, state, last = make(), State(), [(0, 0, 0)]
    load(state, case.listing)

    def arrive() -> None:
        for workload in case.coming:
            if workload.uid in state.jobs.by_uid:
                state.apply(WorkloadRemoved(workload.uid))
            state.apply(workload)

    def work() -> None:
        last[0] = read(decide(state, borrowed.NOW))

    measured = repeat(arrive, work, repeats)
    return measured, last[0]
