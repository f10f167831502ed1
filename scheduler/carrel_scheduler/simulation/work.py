"""What a simulated workload does: how much work there is, what is done, what is saved.

Work is measured in seconds at the workload's minimum size. With more members it goes faster in
proportion, below the minimum it stands still, and when nothing of it runs any more it falls back to
its last checkpoint.
"""

from dataclasses import dataclass

from carrel_scheduler.core.events import WorkloadQueued
from carrel_scheduler.core.gangs import leaves
from carrel_scheduler.core.resources import MILLI


@dataclass(slots=True)
class Work:
    """One workload of a simulation. Times are seconds.

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
        """When it will be done if nothing changes."""
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
        """What was not saved is gone; returns the seconds of work that were lost."""
        self.advance(now)
        lost = self.done - self.saved
        self.done = self.saved
        self.losses += 1
        return lost
