"""Writing to the ledger: reconcile passes, and reports of jobs.

A pass is one transaction, retried when a newer specification came between. Objects that were
removed by force meanwhile are left out of it, and so is the part of a workload that cannot be
written at all: it is set aside, and nothing of it is carried out. Reports are in memory at once and
written in batches, at most once a second.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from carrel_scheduler.core.events import CheckpointSeen
from carrel_scheduler.core.state import State
from carrel_scheduler.ledger.errors import StorageFull
from carrel_scheduler.ledger.records import Ledger, MetricPoint, Transition
from carrel_scheduler.ledger.store import ObjectNotFound, VersionConflict
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.faults.guarding import FATAL
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.events import LoopEvent, SpecRead, WorkloadDeleted
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_scheduler.workloads.state.phases import AT_REST
from carrel_schema.constraints import MOST_METRICS
from carrel_schema.history import Report
from carrel_schema.objects import Checkpoint, Meta, Progress, Workload

log = logging.getLogger(__name__)


class Recorder:
    """Writes passes to the ledger.

    Args:
        ledger: where they are written.
        quarantine: where workloads go whose part cannot be written.
        enqueue: takes events about specifications that were found newer, or gone.
        publish: writes a workload as it is now to the event stream.
        commit: measures the transaction within.
    """

    def __init__(
        self,
        ledger: Ledger,
        quarantine: Quarantine,
        enqueue: Callable[[LoopEvent], None],
        publish: Callable[[str, Workload], None],
        commit: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._ledger, self._quarantine = ledger, quarantine
        self._enqueue, self._publish, self._commit = enqueue, publish, commit

    async def record(self, changes: PassChanges) -> int:
        """Write a pass's changes, or nothing. Raises ``Fenced``.

        Returns the latest version that came of it, 0 when none did.
        """
        removed = [
            entry for uid in changes.removed if (entry := changes.cache.get(uid)) is not None
        ]
        leaving = {entry.uid for entry in removed}
        changed = [entry for uid, entry in changes.dirty.items() if uid not in leaving]
        if not changed and not removed and not changes.decisions and not changes.transitions:
            return 0
        try:
            stored = await self._write(changes, changed, removed)
        except FATAL:
            raise
        except Exception:
            log.exception(
                "a pass could not be recorded as a whole; it is recorded workload by workload"
            )
            stored, removed = await self._write_apart(changes, changed, removed)
        for entry, meta in stored:
            entry.workload.meta = meta
            self._publish("workload", entry.workload)
        for entry in removed:
            self._publish("deleted", entry.workload)
        return max((meta.resource_version for _, meta in stored), default=0)

    async def _write_apart(
        self, changes: PassChanges, changed: list[CachedWorkload], removed: list[CachedWorkload]
    ) -> tuple[list[tuple[CachedWorkload, Meta]], list[CachedWorkload]]:
        """Write each workload's part of the pass by itself; what cannot be written is set aside."""
        stored: list[tuple[CachedWorkload, Meta]] = []
        gone: list[CachedWorkload] = []
        uids = dict.fromkeys(entry.uid for entry in (*changed, *removed))
        uids |= dict.fromkeys(row.workload_uid for row in changes.transitions)
        uids |= dict.fromkeys(row.workload_uid for row in changes.decisions)
        for uid in uids:
            part = replace(
                changes,
                transitions=[row for row in changes.transitions if row.workload_uid == uid],
                decisions=[row for row in changes.decisions if row.workload_uid == uid],
            )
            leaving = [entry for entry in removed if entry.uid == uid]
            with self._quarantine.guard("record", uid, fatal=FATAL) as guard:
                stays = [entry for entry in changed if entry.uid == uid]
                stored += await self._write(part, stays, leaving)
                gone += leaving
            if guard.failed:
                changes.unrecorded.add(uid)
        return stored, gone

    async def _write(
        self, changes: PassChanges, changed: list[CachedWorkload], removed: list[CachedWorkload]
    ) -> Sequence[tuple[CachedWorkload, Meta]]:
        while True:
            there = [entry for entry in changed if not entry.gone]
            try:
                with self._commit():
                    metas = await self._ledger.record(
                        epoch=changes.epoch,
                        statuses=[entry.workload for entry in there],
                        transitions=changes.transitions,
                        decisions=changes.decisions,
                        removed=[entry.workload for entry in removed],
                    )
            except VersionConflict:
                await self._read_again([*there, *removed])
            except ObjectNotFound:
                if not await self._read_again(there):
                    raise
            else:
                return list(zip(there, metas, strict=True))

    async def _read_again(self, entries: list[CachedWorkload]) -> bool:
        """Take over newer specifications, to be followed in the next pass.

        Returns whether one of them was removed by force; its end is seen to in the next pass, too.
        """
        any_gone = False
        for entry in entries:
            try:
                fresh = await self._ledger.get_by_uid(Workload, entry.uid)
            except ObjectNotFound:
                any_gone = entry.gone = True
                self._enqueue(WorkloadDeleted(entry.uid))
                continue
            if fresh.meta.resource_version != entry.workload.meta.resource_version:
                entry.workload.meta, entry.workload.spec = fresh.meta, fresh.spec
                self._enqueue(SpecRead(entry.uid))
        return any_gone


FLUSH_SECONDS = 1.0
"""The interval at which reported values are written."""


class TooManyMetrics(Exception):  # noqa: N818 - an outcome to tell
    """A report has more metrics than a job may have; the whole report is rejected.

    Attributes:
        field: ``metrics`` or ``parameters``.
        name: the first that is one too many.
    """

    def __init__(self, field: str, name: str) -> None:
        super().__init__(f"a job may report {MOST_METRICS} {field} by name; {name!r} is one more")
        self.field, self.name = field, name


@dataclass(slots=True)
class PendingReports:
    """Reports received since the last flush."""

    points: dict[str, list[MetricPoint]] = field(default_factory=lambda: defaultdict(list))
    touched: set[str] = field(default_factory=set)
    due_at: float | None = None

    def take(self, entry: CachedWorkload, report: Report, state: State, now: float) -> None:
        """Apply a report to the status and keep its values for the next write.

        Raises ``TooManyMetrics``.
        """
        status = entry.workload.status
        _check_number("metrics", status.metrics, report.metrics)
        _check_number("parameters", status.parameters, report.parameters)
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
        if report.parameters:
            status.parameters = {**status.parameters, **report.parameters}
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
        """Whether the next write is due."""
        return self.due_at is not None and self.due_at <= now

    def last_of(self, uid: str) -> list[MetricPoint]:
        """Remove and return the values of a workload that sends no more."""
        return self.points.pop(uid, [])

    def empty(self) -> tuple[dict[str, list[MetricPoint]], set[str]]:
        """Remove and return everything that is to be written."""
        points, touched = dict(self.points), set(self.touched)
        self.points.clear()
        self.touched.clear()
        self.due_at = None
        return points, touched


def _check_number(field: str, known: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    new = [name for name in said if name not in known]
    if len(known) + len(new) > MOST_METRICS:
        raise TooManyMetrics(field, new[MOST_METRICS - len(known)])


class ReportWriter:
    """Writes metrics of jobs; values that cannot be stored are lost, with a line in the log."""

    def __init__(self, ledger: Ledger, quarantine: Quarantine, pending: PendingReports) -> None:
        self._ledger, self._quarantine, self._pending = ledger, quarantine, pending

    async def write_last(self, transitions: Sequence[Transition]) -> None:
        """Write the last values of ended workloads, before their end is published."""
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
