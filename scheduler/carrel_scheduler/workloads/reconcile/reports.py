"""What jobs report: kept in memory at once, written in batches at most once a second."""

from collections import defaultdict
from dataclasses import dataclass, field

from carrel_scheduler.core.events import CheckpointSeen
from carrel_scheduler.core.state import State
from carrel_scheduler.ledger.records import MetricPoint
from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.views.contract import Report
from carrel_schema.objects import Checkpoint, Progress

FLUSH_SECONDS = 1.0
MOST_METRICS = 200
"""Of one job by name: all of them stand in its status, which everybody reads."""


class TooManyMetrics(Exception):  # noqa: N818 - an outcome to tell
    """A report names more metrics than a job may have; nothing of it was taken.

    Attributes:
        name: the first that is one too many.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"a job may report {MOST_METRICS} metrics by name; {name!r} is one more")
        self.name = name


@dataclass(slots=True)
class PendingReports:
    """Reports taken in since the last flush."""

    points: dict[str, list[MetricPoint]] = field(default_factory=lambda: defaultdict(list))
    touched: set[str] = field(default_factory=set)
    due_at: float | None = None

    def take(self, entry: CachedWorkload, report: Report, state: State, now: float) -> None:
        """Put a report into the status and remember what is to be written.

        Raises ``TooManyMetrics``.
        """
        status = entry.workload.status
        new = [name for name in report.metrics if name not in status.metrics]
        if len(status.metrics) + len(new) > MOST_METRICS:
            raise TooManyMetrics(new[MOST_METRICS - len(status.metrics)])
        if report.done is not None:
            status.progress = Progress(
                done=report.done,
                total=report.total,
                unit=report.unit,
                at=report.at,
                rate=report.rate,
            )
        if report.metrics:
            status.metrics = {**status.metrics, **report.metrics}
            step = report.step if report.step is not None else 0
            self.points[entry.uid] += [
                MetricPoint(at=report.at, step=step, name=name, value=value)
                for name, value in report.metrics.items()
            ]
        if report.checkpoint_step is not None:
            status.checkpoint = Checkpoint(step=report.checkpoint_step, at=report.at)
            if entry.queued:
                state.apply(CheckpointSeen(entry.uid, report.at))
        if report.notebook is not None and entry.workload.spec.kind == "notebook":
            status.notebook = report.notebook
        self.touched.add(entry.uid)
        if self.due_at is None:
            self.due_at = now + FLUSH_SECONDS

    def due(self, now: float) -> bool:
        """Whether it is time to write."""
        return self.due_at is not None and self.due_at <= now

    def last_of(self, uid: str) -> list[MetricPoint]:
        """Hand over a workload's values alone: no more of them come."""
        return self.points.pop(uid, [])

    def empty(self) -> tuple[dict[str, list[MetricPoint]], set[str]]:
        """Hand over what is to be written and begin anew."""
        points, touched = dict(self.points), set(self.touched)
        self.points.clear()
        self.touched.clear()
        self.due_at = None
        return points, touched
