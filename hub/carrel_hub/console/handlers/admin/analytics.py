"""Analytics: how the cluster, a node, a department or a project was used over time, and now."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Final

from tornado.web import HTTPError
from typing_extensions import override

from carrel.models import Node, Project
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.samples import IDLE_SECONDS, METRICS, SampleSeries

DAYS: Final = (1, 7, 30, 90, 365)
SECONDS_OF_A_DAY: Final = 86_400.0
MOST_POINTS: Final = 500
CHARTS: Final = {
    "GPUs": {
        "there are": "gpus",
        "guaranteed": "quota_gpus",
        "allocated": "gpus_allocated",
        "idle": "gpus_idle",
        "utilization": "gpus_used",
        "asked for by pending work": "gpus_pending",
    },
    "Work": {"running": "running", "pending": "pending"},
    "Cores": {"there are": "cpus", "allocated": "cpus_allocated"},
    "Memory, GiB": {"there is": "memory_gib", "allocated": "memory_allocated_gib"},
}


class _Analytics(SignedInPage):
    """The base of the page, its curves and its table."""

    def asked(self) -> tuple[str, int]:
        """The subject, and the number of days back."""
        subject = self.get_query_argument("subject", "cluster") or "cluster"
        days = self.get_query_argument("days", "1")
        if not days.isdecimal() or int(days) not in DAYS:
            raise HTTPError(400, "days is one of %s", DAYS)
        return subject, int(days)

    async def series(self) -> SampleSeries:
        """The requested metrics."""
        subject, days = self.asked()
        since = self.console.clock() - days * SECONDS_OF_A_DAY
        return await self.client.samples(subject, since=since)


class AnalyticsPage(_Analytics):
    """Figures of now, and plots."""

    @override
    async def get(self) -> None:
        """Show it."""
        subject, days = self.asked()
        nodes = await self.client.nodes()
        projects = await self.client.list_projects()
        departments = await self.client.list_departments()
        await self.show_managed(
            "admin/analytics.html",
            section="analytics",
            subject=subject,
            days=days,
            spans=DAYS,
            subjects=[
                "cluster",
                *sorted({f"node-group/{one.group}" for one in nodes if one.group}),
                *(f"department/{one.name}" for one in departments),
                *(f"project/{one.name}" for one in projects),
                *(f"node/{one.name}" for one in nodes),
            ],
            now_figures=figures(nodes, projects, self.console.clock()),
            lowest=lowest(projects),
        )


class AnalyticsCurves(_Analytics):
    """The plots as JSON."""

    @override
    async def get(self) -> None:
        """Answer."""
        found = await self.series()
        now = self.console.clock()
        every = max(1, len(found.times) // MOST_POINTS)
        runs = [
            {
                "label": label,
                "project": "",
                "curves": {
                    f"{chart}, hours until now": [
                        (round((at - now) / 3600, 2), at, round(value, 3))
                        for at, value in list(zip(found.times, values, strict=True))[::every]
                    ]
                },
            }
            for chart, lines in CHARTS.items()
            for label, metric in lines.items()
            if any(values := found.values.get(metric, ()))
        ]
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps({"runs": runs}, allow_nan=False))


class AnalyticsTable(_Analytics):
    """The same as a CSV file."""

    @override
    async def get(self) -> None:
        """Answer."""
        found, text = await self.series(), io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["at", *METRICS])
        for number, at in enumerate(found.times):
            writer.writerow([at, *(found.values[name][number] for name in METRICS)])
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="analytics.csv"')
        self.finish(text.getvalue())


def figures(
    nodes: Sequence[Node], projects: Sequence[Project], now: float
) -> list[tuple[str, str]]:
    """(label, count) as of now."""
    ready = [one for one in nodes if one.status in ("", "ready")]
    gpus = sum(one.gpu_milli for one in ready) / 1000
    allocated = sum(one.gpu_allocated_milli for one in nodes) / 1000
    devices = [device for one in nodes for device in one.devices]
    idle = sum(
        device.allocated_milli
        for device in devices
        if device.idle_since is not None and now - device.idle_since >= IDLE_SECONDS
    )
    share = f" ({allocated / gpus:.0%})" if gpus else ""
    return [
        ("Ready nodes", f"{len(ready)} of {len(nodes)}"),
        ("Ready GPUs", f"{gpus:g}"),
        ("Allocated", f"{allocated:g}{share}"),
        ("Allocated and idle", f"{idle / 1000:g}"),
        ("Running", str(sum(one.use.running for one in projects))),
        ("Pending", str(sum(one.use.waiting for one in projects))),
    ]


def lowest(projects: Sequence[Project]) -> list[tuple[str, float, float, float]]:
    """(project, allocated, quota, pending) of the projects furthest below their quota."""
    found = [
        (one.name, one.use.gpus_allocated, one.quota.gpus or 0.0, one.use.gpus_waiting)
        for one in projects
        if one.quota.gpus
    ]
    return sorted(found, key=lambda one: one[1] / one[2])[:10]
