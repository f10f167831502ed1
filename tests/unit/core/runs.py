"""Runs in virtual time: a state, the engine that carries plans out, and every invariant checked.

The engine here is the plainest there is: a plan begins at once, stops take a grace period, and what
was evicted asks again. What happens besides (submissions, ends, losses) is told by the test.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from carrel_scheduler.core.decide import ACTIONS, Action, decide
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import (
    CapacityReserved,
    CheckpointSeen,
    Event,
    InstanceRemoved,
    Outcome,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadQueued,
    WorkloadRemoved,
)
from carrel_scheduler.core.invariants.columns import check_books
from carrel_scheduler.core.invariants.state import check
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.settings import DEFAULTS, Settings
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.invariants.evictions import check_plan
from unit.core.invariants.group_quotas import check_groups
from unit.core.invariants.ping_pong import Pair, no_ping_pong, pairs


class Violated(AssertionError):  # noqa: N818 - reads as what happened
    """An invariant does not hold."""


class Run:
    """A run in virtual time.

    Attributes:
        now: virtual time, epoch seconds.
        grace: how long a stop takes, in seconds.
        plans: texts of all plans, in order.
        evicted: uid -> how often it was told to stop, by whatever token.
    """

    def __init__(
        self,
        *events: Event,
        settings: Settings = DEFAULTS,
        grace: float = 3.0,
        actions: Sequence[Action] = ACTIONS,
        checked: bool = True,
    ) -> None:
        self.state = State(settings)
        self.now, self.grace, self.actions, self.checked = 0.0, grace, actions, checked
        self.plans: list[str] = []
        self.evicted: dict[str, list[str]] = {}
        self.ends: dict[tuple[str, int], float] = {}
        self._before: frozenset[Pair] = frozenset()
        self.tell(*events)

    # Facts

    def tell(self, *events: Event) -> None:
        """Facts from outside; who gave way to whom before them is forgotten."""
        self._before = frozenset()
        for event in events:
            self.state.apply(event)

    def submit(self, *queued: WorkloadQueued) -> None:
        """Workloads arrive now."""
        self.tell(*(replace(spec, created_at=self.now) for spec in queued))

    def finish(self, uid: str, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        """End all tasks of a workload, and remove it."""
        for index in sorted(self.state.job(uid).rows):
            self.end_task(uid, index, outcome)
        self.tell(WorkloadRemoved(uid))

    def end_task(self, uid: str, index: int, outcome: Outcome) -> None:
        """End a task, whether or not it was told to."""
        self.ends.pop((uid, index), None)
        self.tell(TaskReleased(uid, index, outcome, self.now))

    def stop(self, uid: str) -> None:
        """Stop all of a workload; it asks again unless it is then gone."""
        for index in self.state.job(uid).running():
            self.tell(TaskReleasing(uid, index))
            self.ends[uid, index] = self.now + self.grace

    def save(self, uid: str) -> None:
        """A checkpoint now."""
        self.tell(CheckpointSeen(uid, self.now))

    # Time

    def step(self) -> Plan:
        """Decide, check, carry out, check."""
        plan = decide(self.state, self.now, self.actions)
        self._check_plan(plan)
        self.plans.append(text_of(plan))
        self._carry_out(plan)
        self.check_state()
        return plan

    def wait(self, seconds: float = 0.0) -> Plan:
        """Time passes, stops finish, then a step."""
        self.now += seconds
        for (uid, index), at in sorted(self.ends.items()):
            if at <= self.now:
                del self.ends[uid, index]
                self._ended(uid, index, at)
        return self.step()

    def settle(self, most: int = 60) -> None:
        """Steps until nothing changes any more; fails when it never rests."""
        for _ in range(most):
            version = self.state.version
            self.wait(self.grace)
            if self.state.version == version and not self.ends:
                return
        raise Violated(f"no rest after {most} steps")

    # Questions

    def running(self) -> list[str]:
        """Workloads of which something runs."""
        return sorted(uid for uid, job in self.state.holding.items() if job.running())

    def sizes(self) -> dict[str, int]:
        """uid -> how many tasks run."""
        return {uid: len(self.state.job(uid).running()) for uid in self.running()}

    def nodes_of(self, uid: str) -> list[str]:
        """Names of the nodes of a workload's running tasks, by task."""
        job, tasks = self.state.job(uid), self.state.tasks
        return [self.state.nodes.names[int(tasks.node[job.rows[i]])] for i in job.running()]

    def used(self, queue: str) -> float:
        """GPUs that a queue holds."""
        return float(self.state.queues.used[self.state.queues.slots[queue]][0]) / 1000

    @property
    def hash(self) -> str:
        """Over all plans so far."""
        return hashlib.sha256("\n".join(self.plans).encode()).hexdigest()

    # Inside

    def check_state(self) -> None:
        """Check all invariants over the state."""
        if self.checked and (found := check(self.state) + check_books(self.state)):
            raise Violated("\n".join(found))

    def _check_plan(self, plan: Plan) -> None:
        if not self.checked:
            return
        try:
            found = check_plan(self.state, plan, self.now)
            found += check_groups(self.state, plan, self.now)
        except InvalidEvent as error:
            found = [f"the plan contradicts the state: {error}"]
        present = pairs(self.state, plan)
        found += no_ping_pong(self._before, present)
        self._before = present
        if found:
            raise Violated("\n".join(found) + "\n" + text_of(plan))

    def _carry_out(self, plan: Plan) -> None:
        """Removals, stops, ends of promises, starts, new promises."""
        state, now = self.state, self.now
        events: list[Event] = [InstanceRemoved(r.node, r.device, r.slots) for r in plan.removals]
        for one in plan.evictions:
            self.evicted.setdefault(one.uid, []).append(str(one.reason.token))
            for index in one.indices or tuple(state.job(one.uid).running()):
                events.append(TaskReleasing(one.uid, index))
                self.ends[one.uid, index] = now + self.grace
        nominations = plan.nominations
        events += [CapacityReserved(n.uid) for n in nominations if not n.places]
        events += [
            TaskPlaced(b.uid, b.index, b.node, b.devices, now, b.slots) for b in plan.bindings
        ]
        events += [CapacityReserved(n.uid, n.places, n.indices) for n in nominations if n.places]
        try:
            for event in events:
                state.apply(event)
        except InvalidEvent as error:
            raise Violated(f"the plan contradicts the state: {error}\n{text_of(plan)}") from error

    def _ended(self, uid: str, index: int, at: float) -> None:
        self.state.apply(TaskReleased(uid, index, Outcome.AGAIN, at))
        job = self.state.job(uid)
        if not job.rows and not job.reservation:
            self.state.apply(replace(job.spec, evicted_at=at))


def text_of(plan: Plan) -> str:
    """A plan's decisions, for hashes and messages."""
    parts = (plan.removals, plan.bindings, plan.evictions, plan.nominations)
    return "\n".join(repr(one) for part in parts for one in part)


def fingerprint(state: State) -> str:
    """The state by name; slots, rows and the order of events are left out."""
    lines = []
    for name, slot in sorted(state.nodes.slots.items()):
        there = state.nodes.fact(slot)
        rows = [0, 1, *(row for _, row in sorted(state.nodes.extended.items()))]
        layers = [
            (
                layer.devices[: there.devices, slot].tolist(),
                layer.slots[: there.devices, slot].tolist(),
                layer.host[rows, slot].tolist(),
            )
            for layer in (state.nodes.free, state.nodes.releasing, state.nodes.reserved)
        ]
        kept = [state.warm.on(slot, device) for device in range(there.devices)]
        lines.append(f"{name} {there} {layers} {kept}")
    for name, slot in sorted(state.queues.slots.items()):
        sums = [
            getattr(state.queues, which)[slot].tolist()
            for which in ("used", "fixed", "releasing", "reserved", "reserved_fixed", "waiting")
        ]
        ceiling, usage = state.queues.ceiling(slot), state.queues.usage[slot].tolist()
        lines.append(f"{name} {state.queues.rule(slot)} {sums} {ceiling} {usage}")
    lines += [_line(state, job) for _, job in sorted(state.jobs.by_uid.items())]
    return "\n".join(lines)


def _line(state: State, job: JobInfo) -> str:
    names = state.nodes.names
    tasks = [(i, state.tasks.footprint(row)) for i, row in sorted(job.rows.items())]
    places = [
        (i, names[p.node], msgspec.structs.replace(p, node=0))
        for i, p in (*tasks, *sorted(job.reservation))
    ]
    sets = [sorted(job.halted), sorted(job.stuck), sorted((job.out or {}).items())]
    flags = (job.queued, job.started, job.saved, job.stale_since, job.uid in state.stale)
    return f"{job.spec} {places} {sets} {flags} {job.uid in state.partial}"
