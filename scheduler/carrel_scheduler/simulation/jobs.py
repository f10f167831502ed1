"""What a simulated workload does: how long it runs, and what it saves."""

from dataclasses import dataclass

from carrel_scheduler.core.events import WorkloadQueued


@dataclass(slots=True)
class Job:
    """One workload of a simulation. Times are seconds.

    Attributes:
        queued: what it asks for.
        duration: of work in all; ``None`` runs until it is told to finish.
        checkpoint_every: work between two checkpoints; ``None`` never saves.
        left: work that is not saved yet, from the last checkpoint on.
        started_at: its present start, ``None`` while it holds nothing.
        stopping: it was told to stop and still holds its room.
        runs: how often it was started, so that what was scheduled for an earlier run is ignored.
        evictions: how often it gave way.
    """

    queued: WorkloadQueued
    duration: float | None = None
    checkpoint_every: float | None = None
    left: float | None = None
    started_at: float | None = None
    stopping: bool = False
    runs: int = 0
    evictions: int = 0

    def __post_init__(self) -> None:
        self.left = self.duration
