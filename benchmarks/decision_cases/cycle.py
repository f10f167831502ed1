"""Full cycles on a large cluster in its steady state, a hundred changes between two of them.

A change is a job that ends or a job that is submitted. A cycle is all of it: taking in these events
and those that the last plan caused, deciding, and making the plan into objects.
"""

import random
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from benchmarks.decision_cases import steady
from benchmarks.decision_cases.loading import Listing, load
from benchmarks.decision_cases.timing import (
    Times,
    collecting_rarely,
    collector_timed,
    least,
    percentile,
)
from benchmarks.report import Figure, median
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CapacityReserved,
    Event,
    Outcome,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadRemoved,
)
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State

GOALS_MS = {4000: 10.0, 10_000: 25.0}
PEER_S = {4000: 1.2}
"""KAI, full cycle with 4,000 nodes and 140,000 pods, after its fix."""
CHANGES = 100
SECONDS_A_CYCLE = 1.0
GRACE_CYCLES = 5


class Cluster:
    """A cluster that lives: jobs end and come, plans are carried out, stops take five cycles.

    Args:
        listing: what there is at first.
        seed: of what happens then.
        lasting: uids of running jobs that do not end.
    """

    def __init__(self, listing: Listing, seed: int = 1, lasting: Collection[str] = ()) -> None:
        self.state = State()
        load(self.state, listing)
        self.now = steady.NOW
        self._rng = random.Random(seed + 2)
        self._arrivals = steady.Arrivals(seed, "comes")
        self._running = sorted(self.state.holding.keys() - set(lasting))
        self._stopping: deque[tuple[int, str, tuple[int, ...]]] = deque()
        self._stops: set[str] = set()
        self._cycles = 0
        self.bound = self.evicted = self.held = 0

    def changes(self) -> list[Event]:
        """The events until the next cycle: stops that finish, jobs that end, jobs that come."""
        self._cycles += 1
        self.now += SECONDS_A_CYCLE
        found: list[Event] = []
        released: set[str] = set()
        while self._stopping and self._stopping[0][0] <= self._cycles:
            _, uid, indices = self._stopping.popleft()
            released.add(uid)
            found += [TaskReleased(uid, index, Outcome.AGAIN, self.now) for index in indices]
        ended: set[str] = set()
        while len(ended) < CHANGES // 2:
            uid = self._pop_running()
            job = self.state.jobs.by_uid.get(uid)
            if job is not None and job.rows and uid not in self._stops | ended:
                tasks = sorted(job.rows)
                found += [TaskReleased(uid, index, Outcome.GONE, self.now) for index in tasks]
                found.append(WorkloadRemoved(uid))
                ended.add(uid)
        self._stops -= released
        missing = steady.WAITING - self.state.waiting.count
        coming = min(CHANGES, max(CHANGES // 4, missing))
        found += [self._arrivals.next(self.now) for _ in range(coming)]
        return found

    def consequences(self, plan: Plan) -> list[Event]:
        """The events that carrying out a plan causes at once."""
        self.bound += len(plan.bindings)
        self.evicted += len(plan.evictions)
        self.held += len(plan.nominations)
        found: list[Event] = []
        for binding in plan.bindings:
            place = (binding.node, binding.devices)
            found.append(TaskPlaced(binding.uid, binding.index, *place, self.now, binding.slots))
            self._running.append(binding.uid)
        for eviction in plan.evictions:
            job = self.state.job(eviction.uid)
            indices = eviction.indices or tuple(job.running())
            found += [TaskReleasing(eviction.uid, index) for index in indices]
            self._stops.add(eviction.uid)
            self._stopping.append((self._cycles + GRACE_CYCLES, eviction.uid, indices))
        found += [
            CapacityReserved(nomination.uid, nomination.places, nomination.indices)
            for nomination in plan.nominations
        ]
        return found

    def _pop_running(self) -> str:
        place = self._rng.randrange(len(self._running))
        self._running[place], self._running[-1] = self._running[-1], self._running[place]
        return self._running.pop()


@dataclass(frozen=True, slots=True)
class CycleTimes:
    """The times of the same cycles: all of each, taking in its events, deciding.

    Attributes:
        collector: the garbage collections between them.
        cluster: as it is after the last cycle.
    """

    total: Times
    events: Times
    deciding: Times
    collector: Times
    cluster: Cluster


def run(nodes: int, tasks: int, cycles: int, warm_up: int, rounds: int) -> list[Figure]:
    """The figures of one size: each cycle counts with the fastest of ``rounds`` equal runs.

    Every run decides the same, so what a slower one took longer for was other work of the machine.
    """
    found = [_measured(nodes, tasks, cycles, warm_up) for _ in range(rounds)]
    fastest = CycleTimes(
        total=least([one.total for one in found]),
        events=least([one.events for one in found]),
        deciding=least([one.deciding for one in found]),
        collector=min((one.collector for one in found), key=lambda times: sum(times.cpu)),
        cluster=found[-1].cluster,
    )
    return _figures(nodes, tasks, cycles, fastest)


def _measured(nodes: int, tasks: int, cycles: int, warm_up: int) -> CycleTimes:
    cluster = Cluster(steady.listing(nodes, tasks))
    total, events, deciding = Times(), Times(), Times()
    pending: list[Event] = []
    with collecting_rarely(), collector_timed() as collector:
        for number in range(cycles + warm_up):
            if number == warm_up:
                total, events, deciding = Times(), Times(), Times()
                collector.wall.clear()
                collector.cpu.clear()
                cluster.bound = cluster.evicted = cluster.held = 0
            changes = pending + cluster.changes()
            with total.one():
                with events.one():
                    for event in changes:
                        cluster.state.apply(event)
                with deciding.one():
                    plan = decide(cluster.state, cluster.now)
                    _ = (plan.bindings, plan.evictions, plan.nominations)
            pending = cluster.consequences(plan)
    return CycleTimes(total, events, deciding, collector, cluster)


def _figures(nodes: int, tasks: int, cycles: int, times: CycleTimes) -> list[Figure]:
    total, events, deciding, cluster = times.total, times.events, times.deciding, times.cluster
    label, goal = f"{nodes:,} nodes, {tasks:,} tasks", GOALS_MS.get(nodes)
    slow = percentile(total.wall, 0.99)
    busy = percentile(total.cpu, 0.99)
    wanted = "-" if goal is None else f"<= {goal:g}"
    rows = [
        Figure(f"{label}: median wall clock", median(total.wall), "ms", "-"),
        Figure(f"{label}: p99 processor time", busy, "ms", wanted, goal is None or busy <= goal),
        Figure(f"{label}: p99 wall clock", slow, "ms", "-"),
        Figure(f"{label}: median processor time", median(total.cpu), "ms", "-"),
        Figure(f"{label}: events, median", median(events.wall), "ms", "-"),
        Figure(f"{label}: deciding, median", median(deciding.wall), "ms", "-"),
        Figure(f"{label}: collector, a cycle", sum(times.collector.cpu) / cycles, "ms", "-"),
        Figure(f"{label}: collector, longest", max(times.collector.cpu, default=0), "ms", "-"),
        Figure(f"{label}: started a cycle", cluster.bound / cycles, "tasks", "-"),
        Figure(f"{label}: evicted a cycle", cluster.evicted / cycles, "jobs", "-"),
        Figure(f"{label}: waiting at the end", cluster.state.waiting.count, "jobs", "-"),
    ]
    if nodes in PEER_S:
        peer = PEER_S[nodes] * 1000 / busy
        rows.append(Figure(f"{label}: times faster than KAI", peer, "x", "-"))
    return rows
