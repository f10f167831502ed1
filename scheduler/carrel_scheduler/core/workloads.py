"""What the state remembers of each workload beside the columns of its tasks.

Records are shared between a state and its copies until a copy changes one: a speculation copies a
dict, not thousands of records.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import WorkloadQueued
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.projects import Triple
from carrel_scheduler.core.resources import MILLI

Shape = tuple[int, int, int, int, frozenset[str] | None]
"""Workloads of one shape are equal to the search for room: request of a task, tasks, nodes."""


@dataclass(slots=True, eq=False)
class Record:
    """One workload, equal to itself only.

    Attributes:
        spec: the event that queued it last.
        project: slot of its project.
        demand: of all its tasks together.
        waiting: it asks for room and has none.
        rows: task index -> row of the task columns, for the tasks that hold room.
        seen: how many of its tasks were placed since it was queued.
        stopping: how many of its tasks were told to stop and still hold their room.
        started: when its first task got its place.
        saved: its last checkpoint.
        promise: the footprints held for it, one per task, empty without a promise.
    """

    spec: WorkloadQueued
    project: int
    shape: Shape
    demand: Triple
    waiting: bool = True
    rows: dict[int, int] = field(default_factory=dict)
    seen: int = 0
    stopping: int = 0
    started: float = 0.0
    saved: float | None = None
    promise: tuple[Footprint, ...] = ()

    def copy(self) -> "Record":
        """An independent copy."""
        return Record(
            self.spec,
            self.project,
            self.shape,
            self.demand,
            self.waiting,
            dict(self.rows),
            self.seen,
            self.stopping,
            self.started,
            self.saved,
            self.promise,
        )

    @property
    def evictable(self) -> bool:
        """It runs, may be stopped for others, and was not told to stop yet."""
        return self.spec.preemptible and bool(self.rows) and not self.stopping

    def lost_if_stopped(self, now: float) -> int:
        """Work since the last checkpoint, or since the start, in GPU-milliseconds."""
        since = self.started if self.saved is None else max(self.started, self.saved)
        gpus = self.demand[0] // MILLI
        return max(gpus, 1) * max(0, int((now - since) * 1000))


def new_record(spec: WorkloadQueued, project: int) -> Record:
    """A waiting workload. Raises ``InvalidEvent`` for a request that means nothing."""
    request = spec.request.as_tuple()
    for name, value in zip(("gpu_milli", "cpu_milli", "memory_mib"), request, strict=True):
        if value < 0:
            raise InvalidEvent("bad_amount", name, value, "an amount that is not negative")
    if request[0] % MILLI:
        raise InvalidEvent("bad_amount", "gpu_milli", request[0], "whole GPUs, multiples of 1000")
    if spec.tasks < 1:
        raise InvalidEvent("bad_amount", "tasks", spec.tasks, "at least one task")
    if not spec.uid:
        raise InvalidEvent("bad_name", "uid", spec.uid, "an id that is not empty")
    demand = (request[0] * spec.tasks, request[1] * spec.tasks, request[2] * spec.tasks)
    return Record(spec, project, (*request, spec.tasks, spec.nodes), demand)


class Records:
    """All workloads by uid."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._mine: set[str] | None = None

    def copy(self) -> "Records":
        """A copy that shares records until it changes them; the original must rest meanwhile."""
        twin = Records()
        twin._records = dict(self._records)
        twin._mine = set()
        return twin

    def get(self, uid: str) -> Record | None:
        """The record for reading."""
        return self._records.get(uid)

    def edit(self, uid: str) -> Record:
        """The record for changing; ``InvalidEvent`` when it is unknown."""
        record = self._records.get(uid)
        if record is None:
            raise InvalidEvent("unknown_workload", "uid", uid, "the uid of a queued workload")
        if self._mine is not None and uid not in self._mine:
            record = self._records[uid] = record.copy()
            self._mine.add(uid)
        return record

    def put(self, record: Record) -> None:
        """Add or replace a record."""
        self._records[record.spec.uid] = record
        if self._mine is not None:
            self._mine.add(record.spec.uid)

    def drop(self, uid: str) -> None:
        """Forget a workload."""
        del self._records[uid]

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)
