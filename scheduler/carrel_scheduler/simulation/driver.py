"""A small driver: arrivals, ends, checkpoints and evictions in virtual time, around ``decide``.

It does what the scheduler's service does with a plan, with nothing real behind it. Everything that
happens at one instant is applied before one decision is made. Deterministic: equal inputs give the
same run.
"""

import heapq
from collections.abc import Callable, Iterable

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CheckpointSeen,
    Event,
    RoomPromised,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadGone,
    WorkloadQueued,
)
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State
from carrel_scheduler.simulation.jobs import Job

Watcher = Callable[[State, Plan], None]


class Simulation:
    """Runs workloads on a state in virtual time.

    Attributes:
        now: the virtual time, in seconds.
        jobs: all workloads that were not deleted, by uid.
        plans: every decision so far with its time.
        endless: while true, nobody's work ends by itself.
    """

    def __init__(
        self,
        state: State,
        *,
        now: float = 0.0,
        grace_seconds: float = 30.0,
        before_plan: Watcher | None = None,
        after_plan: Callable[[State], None] | None = None,
    ) -> None:
        """Drive ``state``.

        Args:
            state: nodes and projects are in it, or come by ``apply``.
            now: the time at the start.
            grace_seconds: how long an evicted workload takes to save its work and stop.
            before_plan: called with every plan before it is carried out.
            after_plan: called when it has been.
        """
        self.state, self.now = state, now
        self.grace_seconds = grace_seconds
        self.jobs: dict[str, Job] = {}
        self.plans: list[tuple[float, Plan]] = []
        self.endless = False
        self._before, self._after = before_plan, after_plan
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0

    # What happens from outside

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Have something happen later."""
        self._numbers += 1
        heapq.heappush(self._agenda, (time, self._numbers, action))

    def apply(self, *events: Event) -> None:
        """Change nodes, projects or anything else now, without deciding."""
        for event in events:
            self.state.apply(event)

    def submit(
        self,
        queued: WorkloadQueued,
        *,
        duration: float | None = None,
        checkpoint_every: float | None = None,
    ) -> None:
        """Submit a workload now, without deciding."""
        self.jobs[queued.uid] = Job(queued, duration, checkpoint_every)
        self.state.apply(queued)

    def delete(self, uid: str) -> None:
        """End a workload now: what it holds is free at once, and it is gone."""
        self._release(uid)
        self.state.apply(WorkloadGone(uid))
        del self.jobs[uid]

    # Time

    def step(self) -> Plan:
        """Decide once, now, and carry the plan out."""
        plan = decide(self.state, self.now)
        if self._before is not None:
            self._before(self.state, plan)
        self._carry_out(plan)
        self.plans.append((self.now, plan))
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
        """Let everything happen up to ``time``, deciding after each instant."""
        self.settle()
        while self._agenda and self._agenda[0][0] <= time:
            self.now = self._agenda[0][0]
            while self._agenda and self._agenda[0][0] == self.now:
                heapq.heappop(self._agenda)[2]()
            self.settle()
        self.now = time

    # What one sees

    def running(self) -> list[str]:
        """The uids that hold room and were not told to stop."""
        return sorted(
            u for u, j in self.jobs.items() if j.started_at is not None and not j.stopping
        )

    def waiting(self) -> list[str]:
        """The uids that wait for room."""
        return sorted(self.state.waiting())

    # Carrying out

    def _carry_out(self, plan: Plan) -> None:
        for binding in plan.bindings:
            place = (binding.node, binding.devices)
            self.state.apply(TaskPlaced(binding.uid, binding.index, *place, at=self.now))
        for uid in dict.fromkeys(binding.uid for binding in plan.bindings):
            self._start(uid)
        for eviction in plan.evictions:
            self._stop(eviction.uid)
        for nomination in plan.nominations:
            self.state.apply(RoomPromised(nomination.uid, nomination.places))

    def _start(self, uid: str) -> None:
        job = self.jobs[uid]
        job.started_at, job.stopping = self.now, False
        job.runs += 1
        run = job.runs
        if job.left is not None:
            self.at(self.now + job.left, lambda: self._finish(uid, run))
        if job.checkpoint_every is not None:
            self.at(self.now + job.checkpoint_every, lambda: self._save(uid, run))

    def _finish(self, uid: str, run: int) -> None:
        job = self.jobs.get(uid)
        running = job is not None and job.runs == run and job.started_at is not None
        if running and not self.endless:
            self.delete(uid)

    def _save(self, uid: str, run: int) -> None:
        """A checkpoint, and the next one later."""
        job = self.jobs.get(uid)
        every = job.checkpoint_every if job is not None else None
        if job is None or every is None or job.runs != run or job.started_at is None:
            return
        if job.left is not None:
            job.left = max(0.0, job.left - every)
        self.state.apply(CheckpointSeen(uid, self.now))
        if not job.stopping:
            self.at(self.now + every, lambda: self._save(uid, run))

    def _stop(self, uid: str) -> None:
        """Told to stop: it holds its room for the grace period, then waits again."""
        job = self.jobs[uid]
        job.stopping = True
        job.evictions += 1
        run = job.runs
        for index in self._indices(uid):
            self.state.apply(TaskReleasing(uid, index))
        self.at(self.now + self.grace_seconds, lambda: self._requeue(uid, run))

    def _requeue(self, uid: str, run: int) -> None:
        job = self.jobs.get(uid)
        if job is not None and job.runs == run and job.stopping:
            self._release(uid)
            self.state.apply(job.queued)

    def _release(self, uid: str) -> None:
        for index in self._indices(uid):
            self.state.apply(TaskReleased(uid, index))
        self.jobs[uid].started_at = None
        self.jobs[uid].stopping = False

    def _indices(self, uid: str) -> Iterable[int]:
        return [place.index for place in self.state.workload(uid).places]
