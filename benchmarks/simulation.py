"""A driver of the core in virtual time: arrivals, ends, checkpoints, failures, lost nodes.

It does what the scheduler's service does with a plan, without processes or pods. All events of one
instant are applied before one decision is made, and a decision is made only when something changed
that may let work start. Deterministic: equal inputs give the same run.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CapacityReserved,
    CheckpointSeen,
    Event,
    InstanceRemoved,
    NodeRemoved,
    NodeSet,
    Outcome,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadQueued,
    WorkloadRemoved,
)
from carrel_scheduler.core.gangs import leaves
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo


@dataclass(slots=True)
class Measures:
    """Sums over time; GPU-seconds count whole GPUs.

    Attributes:
        capacity: of the schedulable nodes while time passed.
        held: by tasks, also by those that were told to stop.
        stopping: of ``held``, by tasks that were told to stop.
        useful: of finished work, at its minimum size.
        lost: work that an eviction, a failure or a node took and that has to be done again.
        idle_while_asked: GPUs that stood idle, at most as many as were asked for.
        asked_capacity, asked_idle: capacity, and what was not held of it, at times when work waits.
    """

    capacity: float = 0.0
    held: float = 0.0
    stopping: float = 0.0
    useful: float = 0.0
    lost: float = 0.0
    idle_while_asked: float = 0.0
    asked_capacity: float = 0.0
    asked_idle: float = 0.0

    def pass_time(
        self, seconds: float, capacity: int, held: int, stopping: int, asked: int
    ) -> None:
        """Add so many seconds with these GPU thousandths."""
        per_gpu = seconds / MILLI
        self.capacity += capacity * per_gpu
        self.held += held * per_gpu
        self.stopping += stopping * per_gpu
        if asked:
            self.asked_capacity += capacity * per_gpu
            self.asked_idle += (capacity - held) * per_gpu
            self.idle_while_asked += min(capacity - held, asked) * per_gpu

    @property
    def in_use_while_asked(self) -> float:
        """Part of the GPUs in use while work waits that could use them; 1 when none ever waits."""
        if not self.asked_capacity:
            return 1.0
        return 1 - self.idle_while_asked / self.asked_capacity

    @property
    def held_while_waiting(self) -> float:
        """The same with every idle GPU counted, also those that nobody asked for."""
        return 1 - self.asked_idle / self.asked_capacity if self.asked_capacity else 1.0

    @property
    def lost_part(self) -> float:
        """Lost work over all work done."""
        done = self.useful + self.lost
        return self.lost / done if done else 0.0


@dataclass(slots=True)
class Work:
    """A workload of a simulation. Times are seconds.

    Attributes:
        queued: what it asks for.
        duration: of its work; ``None`` runs until it is deleted.
        checkpoint_every: virtual seconds of running between two checkpoints; ``None`` never saves.
        submitted: when it came.
        done, saved: work at ``at``, and work that an eviction does not lose.
        at: when ``done`` was brought up to date.
        rate: work done in a second now; 0 while it does not run.
        run: grows with each change of the rate, so that what was planned for before is ignored.
        started: its first start; ``since``: the present one, ``None`` while it does not run.
        finished: its end.
        waited: seconds in which it did not run, up to ``left_off`` or its end.
        left_off: when it last ceased to run, or came.
        evictions: how often all of it was told to stop; ``losses``: how often it fell back.
    """

    queued: WorkloadQueued
    duration: float | None = None
    checkpoint_every: float | None = None
    submitted: float = 0.0
    done: float = 0.0
    saved: float = 0.0
    at: float = 0.0
    rate: float = 0.0
    run: int = 0
    started: float | None = None
    since: float | None = None
    finished: float | None = None
    waited: float = 0.0
    left_off: float = 0.0
    evictions: int = 0
    losses: int = 0

    def __post_init__(self) -> None:
        self.at = self.left_off = self.submitted

    @property
    def gpu_milli(self) -> int:
        """GPU thousandths at its minimum size, for shares by thousandths and whole GPUs."""
        spec = self.queued
        if spec.gang is None:
            requests = [spec.request] * spec.tasks
        else:
            parts = leaves(spec.gang)
            requests = [request for leaf in parts for request in leaf.requests[: leaf.least]]
        return sum(r.gpus * MILLI + r.share_milli * r.devices for r in requests)

    @property
    def ends_at(self) -> float | None:
        """The time of its end if nothing changes."""
        if self.duration is None or self.rate <= 0:
            return None
        return self.at + max(0.0, self.duration - self.done) / self.rate

    def advance(self, now: float) -> None:
        """Bring ``done`` up to date."""
        if self.rate:
            self.done += self.rate * (now - self.at)
            if self.duration is not None:
                self.done = min(self.done, self.duration)
        self.at = now

    def go(self, now: float, rate: float) -> None:
        """Run at this rate from now on; 0 stands still."""
        self.advance(now)
        if rate > 0 and self.since is None:
            self.since = now
            self.waited += now - self.left_off
            self.started = now if self.started is None else self.started
        elif rate == 0 and self.since is not None:
            self.since, self.left_off = None, now
        self.rate = rate
        self.run += 1

    def fall_back(self, now: float) -> float:
        """Fall back to what was saved; returns the seconds of work that were lost."""
        self.advance(now)
        lost = self.done - self.saved
        self.done = self.saved
        self.losses += 1
        return lost


Watcher = Callable[[State, Plan], None]


class Simulation:
    """Runs workloads on a state in virtual time.

    Attributes:
        now: the virtual time, in seconds.
        jobs: all workloads that neither ended nor were deleted, by uid.
        ended: those that came to their end, in order.
        measures: what the GPUs were used for.
        decisions: how often the core was asked.
        endless: while true, nobody's work ends by itself.
    """

    def __init__(
        self,
        state: State,
        *,
        now: float = 0.0,
        grace_seconds: float = 30.0,
        batch_seconds: float = 0.0,
        settles: bool = True,
        before_plan: Watcher | None = None,
        after_plan: Callable[[State], None] | None = None,
    ) -> None:
        """Drive ``state``.

        Args:
            state: nodes and queues are in it, or come by ``apply``.
            now: the time at the start.
            grace_seconds: how long an evicted workload takes to stop.
            batch_seconds: what happens within so many seconds is decided upon together.
            settles: decide again until a plan changes nothing; else once for each batch.
            before_plan: called with every plan before it is carried out.
            after_plan: called when it has been.
        """
        self.state, self.now = state, now
        self.grace_seconds, self.batch_seconds = grace_seconds, batch_seconds
        self._settles = settles
        self.jobs: dict[str, Work] = {}
        self.ended: list[Work] = []
        self.measures = Measures()
        self.decisions = 0
        self.endless = False
        self._before, self._after = before_plan, after_plan
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._changed = True
        self._amounts: tuple[int, int, int, int] | None = None

    # What happens from outside

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Have something happen later."""
        self._numbers += 1
        heapq.heappush(self._agenda, (time, self._numbers, action))

    def apply(self, *events: Event) -> None:
        """Change nodes, queues or anything else now, without deciding."""
        for event in events:
            self.state.apply(event)
        self._changed, self._amounts = True, None

    def submit(
        self,
        queued: WorkloadQueued,
        *,
        duration: float | None = None,
        checkpoint_every: float | None = None,
    ) -> None:
        """Submit a workload now, without deciding."""
        work = Work(queued, duration, checkpoint_every, submitted=self.now)
        self.jobs[queued.uid] = work
        self.apply(queued)

    def delete(self, uid: str) -> None:
        """End a workload now: what it holds is free at once, and it is gone."""
        self._release(uid, self._job(uid).rows, Outcome.GONE)
        self.apply(WorkloadRemoved(uid))
        self.jobs.pop(uid).go(self.now, 0.0)

    def fail(self, uid: str) -> None:
        """End everything of a workload that runs; it waits to run again."""
        if self._job(uid).rows:
            self._drop(uid, self._job(uid).rows)

    def lose_node(self, name: str, back_after: float | None = None) -> None:
        """A node goes down with everything on it, and comes back after so many seconds."""
        slot = self.state.nodes.slot(name)
        fact: NodeSet = self.state.nodes.fact(slot)
        tasks, jobs = self.state.tasks, self.state.jobs
        hit = sorted({jobs.at(int(tasks.job[row])).uid for row in tasks.rows_on(slot)})
        for uid in hit:
            self._fail_on(uid, slot)
        self.apply(NodeRemoved(name))
        if back_after is not None:
            self.at(self.now + back_after, lambda: self.apply(fact))

    # Time

    def step(self) -> Plan:
        """Decide once, now, and carry the plan out."""
        self._changed = False
        self.decisions += 1
        plan = decide(self.state, self.now)
        if self._before is not None:
            self._before(self.state, plan)
        self._carry_out(plan)
        if self._after is not None:
            self._after(self.state)
        return plan

    def settle(self, *, most: int = 100) -> None:
        """Decide until a plan changes nothing more at this instant.

        Raises:
            RuntimeError: after ``most`` plans that each still changed something.
        """
        for _ in range(most):
            plan = self.step()
            if not (plan.bindings or plan.evictions or plan.nominations):
                return
        raise RuntimeError(f"no rest after {most} decisions at {self.now}")

    def run_until(self, time: float) -> None:
        """Let everything happen up to ``time``, deciding after each batch of events."""
        self._decide()
        while self._agenda and self._agenda[0][0] <= time:
            self._happen(min(time, self._agenda[0][0] + self.batch_seconds))
            self._decide()
        self._pass_to(time)

    def run_to_end(self) -> None:
        """Let everything happen until nothing is left on the agenda."""
        self._decide()
        while self._agenda:
            self.run_until(self._agenda[0][0] + self.batch_seconds)

    def _decide(self) -> None:
        if self._changed and self._settles:
            self.settle()
        elif self._changed:
            self.step()

    def _happen(self, until: float) -> None:
        while self._agenda and self._agenda[0][0] <= until:
            time, _, action = heapq.heappop(self._agenda)
            self._pass_to(time)
            action()

    def _pass_to(self, time: float) -> None:
        if time > self.now:
            if self._amounts is None:
                self._amounts = self._present()
            self.measures.pass_time(time - self.now, *self._amounts)
            self.now = time

    def _present(self) -> tuple[int, int, int, int]:
        """Capacity, held, stopping and asked for now, in GPU thousandths."""
        nodes, queues = self.state.nodes, self.state.queues
        capacity = int((nodes.devices * nodes.schedulable).sum()) * MILLI
        tops = queues.table.tops
        used, releasing, waiting = (
            int(sums[:, 0].take(tops).sum())
            for sums in (queues.used, queues.releasing, queues.waiting)
        )
        return capacity, used + releasing, releasing, waiting

    # What one sees

    def running(self) -> list[str]:
        """The uids that hold room and were not told to stop."""
        return sorted(uid for uid, job in self.state.holding.items() if job.running())

    def waiting(self) -> list[str]:
        """The uids of which nothing holds room."""
        return sorted(uid for uid in self.jobs if uid not in self.state.holding)

    def _job(self, uid: str) -> JobInfo:
        return self.state.job(uid)

    # Carrying out

    def _carry_out(self, plan: Plan) -> None:
        self._amounts = None
        bindings, evictions, nominations = plan.bindings, plan.evictions, plan.nominations
        stops = [(e.uid, e.indices or tuple(self._job(e.uid).running())) for e in evictions]
        for removal in plan.removals:
            self.state.apply(InstanceRemoved(removal.node, removal.device, removal.slots))
        for uid, indices in stops:
            self._stop(uid, indices)
        for n in nominations:
            if not n.places:
                self.state.apply(CapacityReserved(n.uid))
        for b in bindings:
            self.state.apply(TaskPlaced(b.uid, b.index, b.node, b.devices, self.now, b.slots))
        for uid in dict.fromkeys(b.uid for b in bindings):
            self._pace(uid)
        for n in nominations:
            if n.places:
                self.state.apply(CapacityReserved(n.uid, n.places, n.indices))

    def _stop(self, uid: str, indices: Iterable[int]) -> None:
        """Told to stop: the tasks go on for the grace period, then wait again."""
        tasks = tuple(indices)
        for index in tasks:
            self.state.apply(TaskReleasing(uid, index))
        self.jobs[uid].evictions += not self._job(uid).running()
        self.at(self.now + self.grace_seconds, lambda: self._stopped(uid, tasks))

    def _stopped(self, uid: str, indices: tuple[int, ...]) -> None:
        job = self.state.jobs.by_uid.get(uid)
        halted = [index for index in indices if index in job.halted] if job is not None else []
        if halted:
            self._drop(uid, halted)

    def _drop(self, uid: str, indices: Iterable[int]) -> None:
        """Tasks are gone and wait again; when none is left, so is what was not saved."""
        self._release(uid, indices, Outcome.AGAIN)
        if not self._job(uid).rows:
            self._lose(uid)
        self._pace(uid)

    def _fail_on(self, uid: str, slot: int) -> None:
        """Tasks on a lost node are gone; what is left of a gang that needs them dies with them."""
        job, tasks = self._job(uid), self.state.tasks
        there = [index for index, row in job.rows.items() if int(tasks.node[row]) == slot]
        self._drop(uid, there if job.shape.elastic else list(job.rows))

    def _release(self, uid: str, indices: Iterable[int], outcome: Outcome) -> None:
        for index in sorted(indices):
            self.state.apply(TaskReleased(uid, index, outcome, self.now))
        self._changed, self._amounts = True, None

    # Work

    def _pace(self, uid: str) -> None:
        """Update the pace, end and next save of a workload after a change of its members."""
        work, job = self.jobs[uid], self._job(uid)
        least, members = len(job.shape.first_step), len(job.rows)
        rate = members / least if members >= least else 0.0
        if rate == work.rate:
            return
        work.go(self.now, rate)
        run, end = work.run, work.ends_at
        if end is not None:
            self.at(end, lambda: self._finish(uid, run))
        if rate:
            self._plan_save(uid, run)

    def _finish(self, uid: str, run: int) -> None:
        work = self.jobs.get(uid)
        if work is None or work.run != run or self.endless:
            return
        work.advance(self.now)
        self.measures.useful += work.done * work.gpu_milli / MILLI
        work.finished = self.now
        self.ended.append(work)
        self.delete(uid)

    def _plan_save(self, uid: str, run: int) -> None:
        every = self.jobs[uid].checkpoint_every
        if every is not None:
            self.at(self.now + every, lambda: self._save(uid, run))

    def _save(self, uid: str, run: int) -> None:
        """A checkpoint, and the next one later."""
        work = self.jobs.get(uid)
        if work is None or work.run != run:
            return
        work.advance(self.now)
        work.saved = work.done
        self.state.apply(CheckpointSeen(uid, self.now))
        self._plan_save(uid, run)

    def _lose(self, uid: str) -> None:
        work = self.jobs[uid]
        self.measures.lost += work.fall_back(self.now) * work.gpu_milli / MILLI
