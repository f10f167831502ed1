"""Consumption: what was used in a span of time, by whom, over time, and what it cost."""

import json
from typing import Final

import msgspec
from tornado.web import HTTPError
from typing_extensions import override

from carrel.client.resources.governance.accounting import UsageReport
from carrel_hub.console.handlers.base import SignedInPage
from carrel_schema.governance.costs import parts_of
from carrel_schema.history import Usage

KEYS: Final = ("project", "user", "department", "kind", "workload", "gpu-type", "node-group")
DAYS: Final = (1, 7, 30, 90, 365)
SECONDS_OF_A_DAY: Final = 86_400.0
MOST_CURVES: Final = 12
MOST_ROWS: Final = 200
MEDIA_TYPES: Final = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}


class _Consumption(SignedInPage):
    """The base of the page, its curves and its table."""

    def asked(self) -> tuple[str, int]:
        """The grouping, and the number of days back."""
        by, days = self.get_query_argument("by", "project"), self.get_query_argument("days", "7")
        if by not in KEYS or not days.isdecimal() or int(days) not in DAYS:
            raise HTTPError(400, "by is one of %s, days one of %s", KEYS, DAYS)
        return by, int(days)

    async def report(self) -> UsageReport:
        """The lines, the largest first."""
        by, days = self.asked()
        since = self.console.clock() - days * SECONDS_OF_A_DAY
        found = await self.client.usage_report(by, since=since)
        items = sorted(found.items, key=lambda one: (-one.gpu_seconds, -one.cpu_seconds, one.key))
        return msgspec.structs.replace(found, items=items)


class ConsumptionPage(_Consumption):
    """A table with totals, and a plot."""

    @override
    async def get(self) -> None:
        """Show it."""
        by, days = self.asked()
        report = await self.report()
        await self.show_managed(
            "admin/consumption.html",
            section="usage",
            by=by,
            days=days,
            keys=KEYS,
            spans=DAYS,
            report=report,
            shown=report.items[:MOST_ROWS],
            sums=_sums(report),
            budgets=[
                (one, part) for one in await self.client.list_budgets() for part in parts_of(one)
            ],
        )


class ConsumptionCurves(_Consumption):
    """GPU-hours over time as JSON, for the largest consumers."""

    @override
    async def get(self) -> None:
        """Answer."""
        by, days = self.asked()
        since = self.console.clock() - days * SECONDS_OF_A_DAY
        buckets = 24 if days == 1 else days
        found = await self.client.usage_series(
            by, since=since, buckets=buckets, largest=MOST_CURVES
        )
        metric = "GPU-hours per hour, until now" if days == 1 else "GPU-hours per day, until today"
        runs = [
            {
                "label": key,
                "project": key if by == "project" else "",
                "curves": {
                    metric: [
                        (number - len(found.times) + 1, at, value)
                        for number, (at, value) in enumerate(
                            zip(found.times, found.gpu_hours[key], strict=True)
                        )
                    ]
                },
            }
            for key in sorted(found.gpu_hours)
        ]
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps({"runs": runs}, allow_nan=False))


class ConsumptionTable(_Consumption):
    """The table as a file, in the format of the scheduler."""

    @override
    async def get(self, form: str) -> None:
        """Answer with ``csv`` or ``parquet``."""
        by, days = self.asked()
        since = self.console.clock() - days * SECONDS_OF_A_DAY
        content = await self.client.usage_table(by, since=since, form=form)
        self.set_header("Content-Type", MEDIA_TYPES[form])
        name = f"usage-by-{by}-{days}-days.{form}"
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.finish(content)


def _sums(report: UsageReport) -> Usage:
    names = [name for name in Usage.__struct_fields__ if name != "key"]
    return Usage(
        key="all", **{name: sum(getattr(one, name) for one in report.items) for name in names}
    )
