"""Prometheus metrics: the edge's own, and the state of the scheduler read at each scrape.

Waits, preemptions and ends are counted from the ledger's rows since the service began, so that they
say the same as every report; gauges are what ``Live`` says at the moment of the scrape.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import Metric

from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.services.prometheus.gauges import Snapshot, families
from carrel_scheduler.api.services.prometheus.runai import runai_families
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.ledger.records import Transition
from carrel_schema.objects import Department, Project

MEDIA_TYPE: Final = "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"
REQUEST_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
WAIT_BUCKETS: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86_400)
ENDED: Final = ("succeeded", "failed", "stopped")
RULES: Final = (Token.RECLAIMED, Token.PREEMPTED, Token.CONSOLIDATED)
"""The rules by which work is evicted most often."""
ROWS: Final = 100_000
# Rows of two writers may be stored a little out of their order in time.
OVERLAP_SECONDS: Final = 60.0


class Metrics:
    """The metrics of an application, in a registry of its own."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps
        self._registry = CollectorRegistry(auto_describe=False)
        self._requests = Histogram(
            "carrel_api_request_seconds",
            "Time to answer, by operation and status; streams are not in it",
            ("operation", "code"),
            buckets=REQUEST_BUCKETS,
            registry=self._registry,
        )
        self._rows = _RowCounts(deps, self._registry)
        self._gauges = _Gauges(deps.runai_metrics)
        self._registry.register(self._gauges)
        if deps.reconciler_metrics is not None:
            self._registry.register(deps.reconciler_metrics)
        self._scraping = asyncio.Lock()

    def observe(self, operation: str, code: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(operation, str(code)).observe(seconds)

    async def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        async with self._scraping:
            await self._rows.read()
            projects = await self._deps.ledger.list(Project)
            departments = await self._deps.ledger.list(Department)
            alerts = self._deps.alerts
            live = self._deps.live
            self._gauges.snapshot = Snapshot(
                now=self._deps.clock(),
                projects=list(projects.items),
                use=live.project_use(),
                queue=list(live.queue()),
                nodes=list(live.nodes()),
                pods=live.pods(),
                faults=live.faults(),
                departments=list(departments.items),
                alerts=() if alerts is None else await alerts.alerts(),
            )
            return generate_latest(self._registry)


class _Gauges:
    """The collector for Prometheus' registry."""

    def __init__(self, runai: bool) -> None:
        self.snapshot: Snapshot | None = None
        self._runai = runai

    def collect(self) -> Iterable[Metric]:
        if self.snapshot is None:
            return
        yield from families(self.snapshot)
        if self._runai:
            yield from runai_families(self.snapshot)


class _RowCounts:
    """Counts from the ledger's rows, each row once."""

    def __init__(self, deps: ApiDependencies, registry: CollectorRegistry) -> None:
        self._deps = deps
        self._since = self._begun_at = deps.clock()
        self._last_id = 0
        self._pending: dict[str, float] = {}
        self._waits = Histogram(
            "carrel_queue_seconds",
            "Time from being queued to having a place, by project and kind",
            ("project", "kind"),
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self._evictions = Counter(
            "carrel_evictions",
            "Workloads that were preempted, by project and rule",
            ("project", "rule"),
            registry=registry,
        )
        self._ended = Counter(
            "carrel_workloads_ended",
            "Workloads that came to rest, by project, kind and phase",
            ("project", "kind", "phase"),
            registry=registry,
        )

    async def read(self) -> None:
        """Count the rows that were added since the last call."""
        while True:
            since = self._since - OVERLAP_SECONDS
            rows = await self._deps.ledger.transitions(since=since, limit=ROWS)
            new = [row for row in rows if row.id > self._last_id]
            await self._count(new)
            if rows:
                self._last_id = max(self._last_id, rows[-1].id)
                self._since = max(self._since, *(row.at for row in new), self._begun_at)
            if len(rows) < ROWS or not new:
                return

    async def _count(self, rows: Sequence[Transition]) -> None:
        for row in rows:
            if row.to_phase == "pending":
                self._pending[row.workload_uid] = row.at
                self._begin(row.project, row.kind)
                continue
            queued_at = self._pending.pop(row.workload_uid, None)
            if row.at < self._begun_at:
                continue
            if row.to_phase == "starting":
                if queued_at is None:
                    queued_at = await self._queued_at(row)
                self._waits.labels(row.project, row.kind).observe(max(0.0, row.at - queued_at))
            elif row.to_phase == "preempting":
                rule = row.reason.token if row.reason else "unknown"
                self._evictions.labels(row.project, rule).inc()
            elif row.to_phase in ENDED:
                self._ended.labels(row.project, row.kind, row.to_phase).inc()

    def _begin(self, project: str, kind: str) -> None:
        """Have counters at zero before their first event: ``increase()`` sees no first sample."""
        self._waits.labels(project, kind)
        for phase in ENDED:
            self._ended.labels(project, kind, phase)
        for rule in RULES:
            self._evictions.labels(project, rule)

    async def _queued_at(self, start: Transition) -> float:
        """The time at which a workload was queued that waited before this service started."""
        rows = await self._deps.ledger.transitions(workload_uid=start.workload_uid)
        return max(
            (row.at for row in rows if row.to_phase == "pending" and row.id < start.id),
            default=start.at,
        )
