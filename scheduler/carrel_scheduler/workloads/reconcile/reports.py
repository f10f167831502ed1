"""Reports of jobs: in memory at once, written to the ledger in batches at most once a second."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from carrel_scheduler.core.events import CheckpointSeen
from carrel_scheduler.core.state import State
from carrel_scheduler.ledger.errors import StorageFull
from carrel_scheduler.ledger.records import Ledger, MetricPoint, Transition
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.faults.guarding import FATAL
from carrel_scheduler.workloads.lifecycle.phases import AT_REST
from carrel_scheduler.workloads.views.contract import Report
from carrel_schema.objects import Checkpoint, Progress

log = logging.getLogger(__name__)
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


class ReportWriter:
    """Writes metrics of jobs; values that cannot be stored are lost, with a line in the log."""

    def __init__(self, ledger: Ledger, quarantine: Quarantine, pending: PendingReports) -> None:
        self._ledger, self._quarantine, self._pending = ledger, quarantine, pending

    async def write_last(self, transitions: Sequence[Transition]) -> None:
        """Write the values of workloads that come to rest before anybody hears that they did."""
        for row in transitions:
            last = self._pending.last_of(row.workload_uid) if row.to_phase in AT_REST else []
            if last:
                await self._write(row.workload_uid, last)

    async def write_due(self, now: float) -> set[str]:
        """Write what has waited long enough; returns whose status is to be recorded for it."""
        if not self._pending.due(now):
            return set()
        points, touched = self._pending.empty()
        for uid, values in points.items():
            await self._write(uid, values)
        return touched

    async def _write(self, uid: str, values: list[MetricPoint]) -> None:
        try:
            with self._quarantine.guard("record", uid, fatal=FATAL):
                await self._ledger.add_metrics(uid, values)
        except StorageFull as error:
            self._quarantine.put("record", uid, error)
            log.warning("%d reported values of %s are lost: %s", len(values), uid, error)
