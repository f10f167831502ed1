"""Lost work of victims against the least of all sets that the rules allow.

Small full clusters and one workload that claims whole GPUs: of its own queue's lower priority, or
of other queues beyond their quota; every set of victims is looked at. Lost work is GPU-seconds
since the last checkpoint. Between queues it counts relative to what a GPU of the queue loses in
the mean, which is what makes a queue that reports checkpoints no better or worse a victim. Before
lost work count two rules: as few as possible take their queue below its guarantee, and as few as
possible are covered by it, as people see it (earlier starts are).
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations

from carrel_scheduler.core.actions.allocate import allocate
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CheckpointSeen,
    Event,
    NodeSet,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    WorkloadQueued,
)
from carrel_scheduler.core.preemption.rules import PREEMPT, RECLAIM
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI, UNLIMITED, ResourceVector
from carrel_scheduler.core.state import State

NOW = 100_000.0
MOST_NODES, MOST_JOBS = 6, 12
LOW, HIGH = 50, 75
Place = tuple[int, tuple[int, ...]]


@dataclass(slots=True)
class Running:
    """A job that runs: where, how much of each device, and what stopping it loses."""

    uid: str
    queue: str
    share: int
    places: list[Place]
    since: float
    saved: float | None
    legal: bool
    fixed: bool = False

    @property
    def milli(self) -> int:
        """GPU thousandths in all."""
        return sum(len(devices) for _, devices in self.places) * self.share

    @property
    def lost(self) -> float:
        """GPU-seconds since its last checkpoint."""
        return (NOW - (self.saved or self.since)) * self.milli / MILLI


@dataclass(slots=True)
class Case:
    """A cluster; ``excess`` is what queues hold beyond their quota, empty inside one queue."""

    devices: list[int]
    jobs: list[Running]
    gpus: int
    tasks: int
    excess: dict[str, int] = field(default_factory=dict)


def random_case(seed: int) -> Case:
    """A full cluster with up to twelve jobs."""
    rng = random.Random(seed)
    between = seed % 2 == 1
    devices = [rng.choice((2, 4, 4, 8)) for _ in range(rng.randint(2, MOST_NODES))]
    queues = [f"q{i}" for i in range(rng.randint(1, 3))] if between else ["q"]
    open_places = [(node, d) for node, count in enumerate(devices) for d in range(count)]
    jobs: list[Running] = []
    while open_places and len(jobs) < MOST_JOBS:
        jobs += _some_jobs(rng, open_places, queues, between, len(jobs))
    case = Case(devices, jobs[:MOST_JOBS], rng.choice((1, 2, 2, 4)), rng.choice((1, 1, 2, 3)))
    held: Counter[str] = Counter()
    for job in case.jobs:
        held[job.queue] += job.milli
    if between:
        case.excess = {q: round(held[q] * rng.uniform(0.3, 0.9)) // MILLI * MILLI for q in queues}
    return case


def _some_jobs(
    rng: random.Random,
    left: list[tuple[int, int]],
    queues: list[str],
    between: bool,
    number: int,
) -> Iterator[Running]:
    """A job of whole GPUs, perhaps on two nodes, or two that share a GPU."""
    started = NOW - rng.randrange(100, 50_000)
    if rng.random() < 0.2:
        node, device = left.pop(0)
        for part in range(2):
            yield _job(
                rng, f"j{number + part:02}", queues, between, 500, [(node, (device,))], started
            )
        return
    places: list[Place] = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        if not left:
            break
        node, size = left[0][0], rng.choice((1, 1, 2, 4))
        here = [place for place in left if place[0] == node][:size]
        if places and len(here) != len(places[0][1]):
            break
        places.append((node, tuple(device for _, device in here)))
        for place in here:
            left.remove(place)
        if rng.random() < 0.5:
            rng.shuffle(left)
            left.sort(key=lambda place: (place[0] == node, place))
    yield _job(rng, f"j{number:02}", queues, between, MILLI, places, started)


def _job(
    rng: random.Random,
    uid: str,
    queues: list[str],
    between: bool,
    share: int,
    places: list[Place],
    started: float,
) -> Running:
    saved = started + rng.random() * (NOW - started) if rng.random() < 0.5 else None
    legal = rng.random() < 0.8
    fixed = not legal and (between or rng.random() < 0.5)
    return Running(uid, rng.choice(queues), share, places, started, saved, legal, fixed)


# The core


@dataclass(frozen=True, slots=True)
class Found:
    """The victims of the core; those who are given places elsewhere are ``moved``."""

    stopped: frozenset[str]
    moved: frozenset[str]


def decided(case: Case) -> Found | None:
    """The decision of the core, or ``None`` when it reserves nothing for the preemptor."""
    state = State()
    for event in _events(case):
        state.apply(event)
    action = RECLAIM.run if case.excess else PREEMPT.run
    plan = decide(state, NOW, (allocate, action))
    served = any(n.uid == "preemptor" for n in plan.nominations)
    started = any(b.uid == "preemptor" for b in plan.bindings)
    if not (served or started):
        return None
    return Found(
        frozenset(e.uid for e in plan.evictions),
        frozenset(e.uid for e in plan.evictions if e.moved),
    )


def _events(case: Case) -> Iterator[Event]:
    for number, count in enumerate(case.devices):
        yield NodeSet(f"n{number}", count, 64 * MILLI, 65_536)
    held: Counter[str] = Counter()
    for job in case.jobs:
        held[job.queue] += job.milli
    quotas = {queue: held[queue] - excess for queue, excess in case.excess.items()}
    wanted = case.gpus * case.tasks * MILLI
    quotas = {**quotas, "claiming": wanted} if case.excess else {"q": UNLIMITED}
    for name, milli in quotas.items():
        yield QueueSet(name, ResourceVector(milli, UNLIMITED, UNLIMITED))
    for job in case.jobs:
        yield from _running(job)
    yield WorkloadQueued(
        "preemptor",
        "preemptor",
        "claiming" if case.excess else "q",
        "user",
        HIGH,
        Preemptibility.YES,
        Request(gpus=case.gpus),
        case.tasks,
        NOW - 10,
    )


def _running(job: Running) -> Iterator[Event]:
    devices = len(job.places[0][1])
    share = job.share if job.share < MILLI else 0
    request = Request(gpus=0 if share else devices, share_milli=share)
    kind = Preemptibility.NO if job.fixed else Preemptibility.YES
    priority = LOW if job.legal else HIGH
    yield WorkloadQueued(
        job.uid, job.uid, job.queue, "user", priority, kind, request, len(job.places), job.since - 5
    )
    for index, (node, taken) in enumerate(job.places):
        yield TaskPlaced(job.uid, index, f"n{node}", taken, job.since)
    if job.saved is not None:
        yield CheckpointSeen(job.uid, job.saved)


# All sets


Cost = tuple[int, int, float]
"""Victims that take a queue below what it keeps, victims shown as covered, work lost."""


def least(case: Case) -> Cost | None:
    """The least that any legal set which suffices costs; ``None`` when there is none."""
    costs = [cost(case, chosen) for chosen in _sets(case) if _suffices(case, chosen)]
    return min(costs, default=None)


def cost(case: Case, chosen: frozenset[str]) -> Cost:
    """The cost of these together; lost work by the rule for comparing queues."""
    lost = sum(job.lost / mean for job, mean in _with_means(case) if job.uid in chosen)
    if not case.excess:
        return 0, 0, lost
    mine = [job for job in case.jobs if job.uid in chosen]
    below = sum(job.milli > case.excess[job.queue] for job in mine)
    return below, len(chosen & _covered(case)), lost


def ratio(found: Cost, best: Cost) -> float:
    """Lost work over the least; infinite where a rule before it was not heeded."""
    if found[:2] != best[:2]:
        return float("inf")
    return found[2] / best[2] if best[2] else 1.0


def _covered(case: Case) -> frozenset[str]:
    """Jobs within their queue's quota, in the order non-preemptible, priority, start."""
    held: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for job in case.jobs:
        total[job.queue] += job.milli
    covered = set()
    ordered = sorted(case.jobs, key=lambda job: (not job.fixed, job.legal, job.since, job.uid))
    for job in ordered:
        held[job.queue] += job.milli
        if held[job.queue] <= total[job.queue] - case.excess[job.queue]:
            covered.add(job.uid)
    return frozenset(covered)


def is_allowed(case: Case, found: Found) -> bool:
    """Whether those who are stopped and not moved are a set that the rules allow."""
    chosen = [job for job in case.jobs if job.uid in found.stopped - found.moved]
    return all(job.legal for job in chosen) and _within_budgets(case, tuple(chosen))


def _with_means(case: Case) -> Iterator[tuple[Running, float]]:
    """Jobs that may be stopped, and what a GPU of their queue loses in the mean."""
    lost: dict[str, float] = defaultdict(float)
    held: dict[str, float] = defaultdict(float)
    legal = [job for job in case.jobs if job.legal]
    for job in legal:
        lost[job.queue] += job.lost
        held[job.queue] += job.milli / MILLI
    for job in legal:
        yield job, lost[job.queue] / held[job.queue]


def _sets(case: Case) -> Iterator[frozenset[str]]:
    """The sets that the rules allow."""
    legal = [job for job in case.jobs if job.legal]
    every = chain.from_iterable(combinations(legal, size) for size in range(len(legal) + 1))
    for chosen in every:
        if _within_budgets(case, chosen):
            yield frozenset(job.uid for job in chosen)


def _within_budgets(case: Case, chosen: tuple[Running, ...]) -> bool:
    """Whether each queue is still beyond its quota when its last victim goes."""
    taken: dict[str, list[int]] = {}
    for job in chosen:
        taken.setdefault(job.queue, []).append(job.milli)
    return not case.excess or all(
        sum(amounts) - max(amounts) < case.excess[queue] for queue, amounts in taken.items()
    )


def _suffices(case: Case, chosen: frozenset[str]) -> bool:
    taken = {
        (node, device)
        for job in case.jobs
        if job.uid not in chosen
        for node, devices in job.places
        for device in devices
    }
    free = [
        sum((node, device) not in taken for device in range(count))
        for node, count in enumerate(case.devices)
    ]
    return sum(count // case.gpus for count in free) >= case.tasks
