"""Scores of the core on random situations: (what it won, what it cost), per kind.

Won: thousandths of GPUs that run, claims that were met, gangs that were placed. Cost: GPU seconds
lost since the last checkpoint, tasks that moved, domains over which gangs lie.
"""

import random
from collections.abc import Callable

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CheckpointSeen,
    Event,
    Outcome,
    QueueSet,
    TaskPlaced,
    TaskReleased,
    TopologySet,
    WorkloadQueued,
    WorkloadRemoved,
)
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.settings import DEFAULTS, Settings, Strategy
from carrel_scheduler.core.state import State
from unit.core.situations import apply, asking, carry_out, node, queue, state_of, training

Figures = tuple[int, int]
SHARES = (0.25, 0.5, 0.5, 0.3, 0.7, 1, 1, 2)
WHOLES = (1, 1, 2, 4, 8)
MIXED = (0.25, 0.5, 1, 1, 2, 4, 8, 0)


def packing(sizes: tuple[float, ...], settings: Settings = DEFAULTS) -> Callable[[int], Figures]:
    """Arrivals one by one, with ends between them; won: what runs, summed over time."""

    def told(seed: int) -> Figures:
        dice = random.Random(seed)
        nodes = [node(f"n{n}", dice.choice((4, 8)), cpu=48, memory_gib=200) for n in range(6)]
        state = state_of(*nodes, queue("a"), settings=settings)
        won, running = 0, list[str]()
        for number in range(70):
            size = dice.choice(sizes)
            cpu, memory = dice.choice((1, 2, 4)) * (size or 1), dice.choice((1, 4, 16))
            state.apply(training(f"w{number}", "a", size, cpu=cpu, memory_gib=memory))
            running += _started(state, float(number))
            if running and dice.random() < 0.3:
                _end(state, running.pop(dice.randrange(len(running))))
            won += int(state.queues.used[0][0])
        return won, 0

    return told


def claims(same_queue: bool, sizes: tuple[int, ...]) -> Callable[[int], Figures]:
    """A full cluster and work with a better right to it; won: claims met; cost: work lost."""

    def told(seed: int) -> Figures:
        dice = random.Random(seed)
        rules = [queue("a", 0 if same_queue else 2), queue("b", 3), queue("c", 20)]
        state = state_of(*(node(f"n{n}", 4, cpu=64) for n in range(5)), *rules)
        _fill(state, dice, ("c",) if same_queue else ("a", "b"))
        won = cost = 0
        for number in range(4):
            tasks = dice.choice((1, 1, 2, 3))
            gang = Group(requests=(asking(dice.choice(sizes), cpu=4),) * tasks)
            priority = 60 if same_queue else 50
            state.apply(training(f"claim{number}", "c", gang=gang, priority=priority))
            now = 1000.0 + number
            plan = decide(state, now)
            won += f"claim{number}" in _served(plan)
            cost += _lost(state, plan, now)
            carry_out(state, plan, now)
            _finish_stops(state, now)
            carry_out(state, decide(state, now), now)
        return won, cost

    return told


def moving(seed: int) -> Figures:
    """Room in pieces; won: large work that gets room; cost: tasks that move."""
    dice = random.Random(seed)
    state = state_of(*(node(f"n{n}", 8, cpu=64) for n in range(6)), queue("a"), queue("b", 40))
    for n in range(6):
        for number in range(dice.randint(1, 3)):
            first = 2 * number
            width = dice.choice((1, 2))
            uid = f"v{n}.{number}"
            devices = tuple(range(first, first + width))
            job = training(uid, "b", width, interactive=dice.random() < 0.1)
            apply(state, [job, TaskPlaced(uid, 0, f"n{n}", devices, float(dice.randrange(900)))])
    won = cost = 0
    for number in range(3):
        state.apply(training(f"large{number}", "b", dice.choice((6, 8))))
        now = 1000.0 + number
        plan = decide(state, now)
        won += sum(uid.startswith("large") for uid in _served(plan))
        cost += sum(len(one.indices) or 1 for one in plan.evictions if one.moved)
        carry_out(state, plan, now)
        _finish_stops(state, now)
        carry_out(state, decide(state, now), now)
    return won, cost


def racks(seed: int) -> Figures:
    """Gangs that would lie near each other; won: placed; cost: racks over which they lie."""
    dice = random.Random(seed)
    nodes = [
        node(f"n{n:02}", 4, labels=(("zone", f"z{n // 8}"), ("rack", f"r{n // 3}")))
        for n in range(16)
    ]
    state = state_of(TopologySet("t", ("zone", "rack")), *nodes, queue("a"))
    won = cost = 0
    for number in range(12):
        level = dice.choice((Level(required="zone", preferred="rack"), Level(preferred="rack")))
        tasks = dice.choice((2, 3, 4, 6))
        gang = Group(requests=(asking(dice.choice((1, 2, 2, 4))),) * tasks, level=level)
        state.apply(training(f"g{number}", "a", gang=gang))
        plan = decide(state, float(number))
        places = {state.nodes.fact(state.nodes.slot(one.node)).labels[1] for one in plan.bindings}
        won, cost = won + bool(places), cost + len(places)
        carry_out(state, plan, float(number))
        if dice.random() < 0.3 and state.holding:
            _end(state, dice.choice(sorted(state.holding)))
    return won, cost


def sharing(seed: int) -> Figures:
    """Queues beyond their quotas; won: what runs; cost: how far they are from their weights."""
    dice = random.Random(seed)
    rules = [
        QueueSet(f"q{n}", queue("x", n).quota, weight=(1000 * (n + 1), 1000, 1000))
        for n in range(3)
    ]
    state = state_of(*(node(f"n{n}", 4) for n in range(6)), *rules)
    for number in range(60):
        state.apply(training(f"w{number:02}", f"q{number % 3}", dice.choice((0.5, 1, 1, 2))))
    _started(state, 10.0)
    used = [int(amounts[0]) for amounts in state.queues.used[:3]]
    wanted = [n * 1000 + 21_000 * (n + 1) // 6 for n in range(3)]
    return sum(used), sum(abs(one - other) for one, other in zip(used, wanted, strict=True))


KINDS: dict[str, Callable[[int], Figures]] = {
    "packing of shares": packing(SHARES),
    "packing of whole devices": packing(WHOLES),
    "packing of everything": packing(MIXED),
    "spreading of everything": packing(MIXED, Settings(gpu_strategy=Strategy.SPREAD)),
    "reclaiming single devices": claims(same_queue=False, sizes=(1,)),
    "reclaiming": claims(same_queue=False, sizes=(1, 2, 4)),
    "preempting": claims(same_queue=True, sizes=(1, 2, 4)),
    "moving": moving,
    "racks": racks,
    "sharing": sharing,
}


def _fill(state: State, dice: random.Random, projects: tuple[str, ...]) -> None:
    """Fill every device with work of several ages and with checkpoints."""
    for n in range(5):
        first = 0
        while first < 4:
            width = min(dice.choice((1, 1, 2, 4)), 4 - first)
            uid, project = f"v{n}.{first}", dice.choice(projects)
            priority = dice.choice((30, 50))
            job: WorkloadQueued = training(
                uid, project, width, priority=priority, created_at=float(dice.randrange(100))
            )
            events: list[Event] = [job, TaskPlaced(
                uid, 0, f"n{n}", tuple(range(first, first + width)), float(dice.randrange(100, 900))
            )]  # fmt: skip
            if dice.random() < 0.5:
                events.append(CheckpointSeen(uid, float(dice.randrange(900, 1000))))
            apply(state, events)
            first += width


def _served(plan: Plan) -> list[str]:
    return [one.uid for one in plan.bindings] + [one.uid for one in plan.nominations]


def _started(state: State, now: float) -> list[str]:
    plan = decide(state, now)
    carry_out(state, plan, now)
    return [binding.uid for binding in plan.bindings]


def _lost(state: State, plan: Plan, now: float) -> int:
    """GPU seconds since the start or the last checkpoint, of all that does not only move."""
    jobs = [state.job(one.uid) for one in plan.evictions if not one.moved]
    return sum(round((now - job.since) * job.spec.request.gpus) for job in jobs)


def _finish_stops(state: State, now: float) -> None:
    for uid, job in sorted(state.holding.items()):
        for index in sorted(job.halted):
            state.apply(TaskReleased(uid, index, Outcome.AGAIN, now))


def _end(state: State, uid: str) -> None:
    for index in sorted(state.job(uid).rows):
        state.apply(TaskReleased(uid, index, Outcome.SUCCEEDED, 0.0))
    state.apply(WorkloadRemoved(uid))
