"""Use of a workload's GPUs over its whole life, in a bounded number of points.

A point is the mean of the readings of one slot of time. When there are too many points, slots
become twice as long and neighbours are joined. Time without readings has no points. Nothing of it
is written down: it begins anew with the scheduler.
"""

from dataclasses import dataclass, field
from typing import Final

from carrel_schema.history import GpuUsePoint

MOST_POINTS: Final = 120
FIRST_SLOT_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Slot:
    at: float
    gpus: float
    memory_mib: float
    readings: int = 1

    def join(self, other: "_Slot") -> None:
        whole = self.readings + other.readings
        self.gpus += (other.gpus - self.gpus) * other.readings / whole
        self.memory_mib += (other.memory_mib - self.memory_mib) * other.readings / whole
        self.at, self.readings = other.at, whole


@dataclass(slots=True)
class GpuSeries:
    """The points of a workload's GPU use.

    Attributes:
        slot_seconds: how much time one point stands for.
    """

    slot_seconds: float = FIRST_SLOT_SECONDS
    _slots: list[_Slot] = field(default_factory=list)

    def add(self, at: float, gpus: float, memory_mib: int) -> None:
        """A reading at ``at`` (epoch seconds): so many GPUs' worth of work, so much memory."""
        slot = _Slot(at, gpus, float(memory_mib))
        if self._slots and self._begin_of(self._slots[-1].at) == self._begin_of(at):
            self._slots[-1].join(slot)
            return
        self._slots.append(slot)
        while len(self._slots) > MOST_POINTS:
            self._double()

    def points(self) -> tuple[GpuUsePoint, ...]:
        """All points, oldest first."""
        return tuple(
            GpuUsePoint(at=one.at, gpus=round(one.gpus, 3), memory_mib=round(one.memory_mib))
            for one in self._slots
        )

    def mean_since(self, since: float) -> float | None:
        """GPUs' worth of work, mean of the points from ``since`` on; ``None``: there are none."""
        found: list[float] = []
        for slot in reversed(self._slots):
            if slot.at < since:
                break
            found.append(slot.gpus)
        return sum(found) / len(found) if found else None

    @property
    def length_seconds(self) -> float:
        """Seconds from the first point to the last."""
        return self._slots[-1].at - self._slots[0].at if self._slots else 0.0

    def _begin_of(self, at: float) -> int:
        return int(at // self.slot_seconds)

    def _double(self) -> None:
        self.slot_seconds *= 2
        joined: list[_Slot] = []
        for slot in self._slots:
            if joined and self._begin_of(joined[-1].at) == self._begin_of(slot.at):
                joined[-1].join(slot)
            else:
                joined.append(slot)
        self._slots = joined
