"""What a simulated cluster was used for: GPU-seconds held, lost, and idle while work waited."""

from dataclasses import dataclass

from carrel_scheduler.core.resources import MILLI


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
        """So many seconds have passed with these GPU thousandths."""
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
