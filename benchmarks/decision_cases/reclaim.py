"""A gang of N/2 whole nodes takes back N nodes full of 1-GPU over-quota jobs, in one decision."""

from benchmarks.decision_cases import borrowed
from benchmarks.decision_cases.loading import load
from benchmarks.decision_cases.timing import Times, figures, repeat
from benchmarks.report import Figure
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import WorkloadRemoved
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State

GOALS_MS = {1000: 8.0, 10_000: 30.0}
PEER_S = {100: 0.2, 500: 1.5, 1000: 6.1}
"""KAI's own benchmark of the like, one decision, its best published figures."""


def run(nodes: list[int], repeats: int) -> list[Figure]:
    """The figures, one size after the other."""
    rows: list[Figure] = []
    for size in nodes:
        for name, make in (("tight", borrowed.tight), ("loose", borrowed.loose)):
            rows += _figures(size, name, *times(make(size), repeats))
    return rows


def prepared(claim: borrowed.Claim) -> State:
    """The cluster before the gang comes."""
    state = State()
    load(state, claim.listing)
    return state


def again(state: State, claim: borrowed.Claim) -> None:
    """The gang comes, as if it had never been there: no search for it is remembered."""
    state.cache.searches.clear()
    if claim.gang.uid in state.jobs.by_uid:
        state.apply(WorkloadRemoved(claim.gang.uid))
    state.apply(claim.gang)


def read(plan: Plan) -> tuple[int, int, int]:
    """Make a plan into objects: bindings, evictions, tasks with reserved places."""
    held = sum(len(nomination.places) for nomination in plan.nominations)
    return len(plan.bindings), len(plan.evictions), held


def times(claim: borrowed.Claim, repeats: int) -> tuple[Times, tuple[int, int, int]]:
    """Times of the decision and what the last one decided."""
    state = prepared(claim)
    last = [(0, 0, 0)]

    def work() -> None:
        last[0] = read(decide(state, borrowed.NOW))

    measured = repeat(lambda: again(state, claim), work, repeats)
    return measured, last[0]


def _figures(size: int, name: str, measured: Times, found: tuple[int, int, int]) -> list[Figure]:
    goal = GOALS_MS.get(size) if name == "tight" else None
    half, label = size // 2, f"{size:,} nodes, {name} budgets"
    rows = [
        *figures(label, measured, goal),
        Figure(f"{label}: places held", found[2], "tasks", f"= {half}", found[2] == half),
        Figure(f"{label}: evictions", found[1], "jobs", f"= {half * 8}", found[1] == half * 8),
    ]
    if name == "tight" and size in PEER_S:
        peer = PEER_S[size] * 1000 / rows[0].value
        rows.append(Figure(f"{label}: times faster than KAI", peer, "x", "-"))
    return rows
