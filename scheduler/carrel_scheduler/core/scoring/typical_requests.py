"""Typical GPU needs, learned from the requests that were queued.

A typical need is (CPU, thousandths per device, whole devices, where it may run); CPU is rounded up
to a step, so that look-alikes are one. Arrivals are counted per need and fade: a need that came
``HALF_LIFE`` arrivals ago counts half. Kept are the needs with the most GPU demand that make up
``COVER`` of it, so rare large ones stay and the long tail does not cost. Work without GPUs is not
among them: it is GPUs that must stay useful. Everything follows from the order of arrivals.
"""

from dataclasses import dataclass

from carrel_scheduler.core.devices.classes import Classes, Form
from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI

CPU_STEP = 500
COVER = 0.98
HALF_LIFE = 20_000
FADE_EVERY = 1_000
FADE = 0.5 ** (FADE_EVERY / HALF_LIFE)


@dataclass(frozen=True, slots=True)
class TypicalNeed:
    """A frequent need.

    Attributes:
        cpu_milli: rounded up to ``CPU_STEP``.
        whole: whole devices; 0 for a share.
        share: thousandths of one device; 1000 for whole ones.
        request: one with the same conditions on nodes.
        part: its part of the arrivals, all typical needs together 1.
    """

    cpu_milli: int
    whole: int
    share: int
    request: Request
    part: float

    @property
    def milli(self) -> int:
        """GPU thousandths in all."""
        return max(self.whole, 1) * self.share


class ShapesSeen:
    """Counts of arrivals by need."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._of_class: dict[int, tuple[int, int]] = {}
        self._numbers: dict[tuple[int, int, int, Request], int] = {}
        self._needs: list[tuple[int, int, int, Request]] = []
        self._counts: list[float] = []
        self.arrivals = 0

    def seen(self, class_id: int, tasks: int) -> None:
        """So many tasks of a class were queued, which is one decision each."""
        found = self._of_class.get(class_id)
        if found is None:
            found = self._of_class[class_id] = self._need(class_id)
        number, times = found
        if number >= 0:
            self._counts[number] += tasks * times
        before = self.arrivals
        self.arrivals += tasks
        for _ in range(self.arrivals // FADE_EVERY - before // FADE_EVERY):
            self._counts = [count * FADE for count in self._counts]

    def typical(self) -> list[TypicalNeed]:
        """The needs with the most demand, sorted by size of share, then in order of appearance."""
        demand = [
            count * max(need[1], 1) * need[2]
            for need, count in zip(self._needs, self._counts, strict=True)
        ]
        wanted, covered = COVER * sum(demand), 0.0
        kept: list[int] = []
        for number in sorted(range(len(demand)), key=lambda n: (-demand[n], n)):
            if covered >= wanted:
                break
            kept.append(number)
            covered += demand[number]
        total = sum(self._counts[number] for number in kept)
        kept.sort(key=lambda number: (self._needs[number][2], self._needs[number][1], number))
        return [
            TypicalNeed(*self._needs[number], part=self._counts[number] / total) for number in kept
        ]

    def memory(self) -> tuple[int, tuple[float, ...]]:
        """A snapshot of the counts, for ``recall``."""
        return self.arrivals, tuple(self._counts)

    def recall(self, memory: tuple[int, tuple[float, ...]]) -> None:
        """Restore a snapshot; needs that were added since keep their numbers."""
        self.arrivals, counts = memory
        self._counts = [*counts, *[0.0] * (len(self._needs) - len(counts))]

    def _need(self, class_id: int) -> tuple[int, int]:
        """The number of the need of a class, -1 without GPUs, and how many of it a task is."""
        kind = self._classes.kinds[class_id]
        if kind.form is Form.NONE:
            return -1, 0
        request = self._classes.request(class_id)
        cpu = -(-request.cpu_milli // CPU_STEP) * CPU_STEP
        each = self._classes.amounts(class_id)[0] // kind.devices
        whole, share = (kind.amount, MILLI) if kind.form is Form.WHOLE else (0, each)
        if share == MILLI and not whole:
            whole = 1
        where = NodeConstraint(labels=request.where.labels, tolerations=request.where.tolerations)
        place = Request(
            share_milli=int(kind.form is Form.SHARE),
            gpu_memory_mib=request.gpu_memory_mib,
            mig_profile=request.mig_profile,
            where=where,
        )
        key = (cpu // kind.devices, whole, share, place)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._needs)
            self._needs.append(key)
            self._counts.append(0.0)
        return number, kind.devices
