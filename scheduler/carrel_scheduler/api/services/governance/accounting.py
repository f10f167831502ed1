"""Accounting: use by department, project, user, workload or kind, what it cost, and over time.

Everybody hears of the projects that they see. All is computed from the ledger's rows of the past;
nothing is counted beside them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.models.answers import UsageList
from carrel_scheduler.api.models.queries import UsageQuery, UsageSeriesQuery
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.governance import usage_tables
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_schema.governance.costs import PriceFields, PricesOut
from carrel_schema.history import UsageSeries
from carrel_schema.objects import Project
from carrel_schema.scopes import PLATFORM

KIND: Final = "prices"
NAME: Final = "default"
WEEK_SECONDS: Final = 7 * 86_400.0
SECONDS_OF_AN_HOUR: Final = 3600


class Accounting:
    """Sums up use, and keeps the price list."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    async def usage(self, query: UsageQuery, principal: Principal) -> UsageList:
        """Use in a span of time, which ends now at the latest."""
        since, until = self._range(query)
        prices = await self.prices()
        projects = principal.visible_projects()
        items = (
            []
            if projects == []
            else await self._deps.ledger.usage(
                by=query.by,
                since=since,
                until=until,
                projects=projects,
                departments=await self._departments(query.by),
                prices=prices.periods,
            )
        )
        currency = prices.currency if prices.periods else ""
        return UsageList(items=items, currency=currency, since=since, until=until)

    async def table(self, query: UsageQuery, principal: Principal, *, parquet: bool) -> bytes:
        """The same as a file of CSV or Parquet. Raises ``Conflicting`` without pyarrow."""
        found = await self.usage(query, principal)
        write = usage_tables.as_parquet if parquet else usage_tables.as_csv
        return await asyncio.to_thread(write, query.by, found.items)

    async def series(self, query: UsageSeriesQuery, principal: Principal) -> UsageSeries:
        """GPU-hours in equal parts of a span of time."""
        since, until = self._range(query)
        projects = principal.visible_projects()
        found: Mapping[str, Sequence[float]] = {}
        if projects != [] and until > since:
            found = await self._deps.ledger.usage_series(
                by=query.by,
                since=since,
                until=until,
                buckets=query.buckets,
                projects=projects,
                departments=await self._departments(query.by),
                largest=query.largest,
            )
        width = (until - since) / query.buckets
        return UsageSeries(
            times=[since + number * width for number in range(query.buckets)],
            gpu_hours={
                key: [seconds / SECONDS_OF_AN_HOUR for seconds in line]
                for key, line in found.items()
            },
            since=since,
            until=until,
        )

    async def prices(self) -> PricesOut:
        """The price list; empty where none was written."""
        try:
            record = await self._deps.ledger.scoped.get(KIND, PLATFORM, NAME)
        except ObjectNotFound:
            return PricesOut()
        return _out(record)

    async def put_prices(self, fields: PriceFields, principal: Principal) -> PricesOut:
        """Replace the price list. Raises ``InvalidRequest`` for periods that are not in order."""
        for number, (one, after) in enumerate(
            zip(fields.periods, fields.periods[1:], strict=False), start=1
        ):
            if after.since <= one.since:
                raise problems.invalid_field(
                    f"periods.{number}.since",
                    Code.WRONG_FORM,
                    after.since,
                    f"later than that of the period before, {one.since:g}",
                )
        record = ScopedRecord(
            kind=KIND,
            scope=PLATFORM,
            name=NAME,
            content=msgspec.Raw(msgspec.json.encode(fields)),
        )
        return _out(await self._deps.ledger.scoped.put(record, actor=principal.name))

    def _range(self, query: UsageQuery) -> tuple[float, float]:
        now = self._deps.clock()
        until = now if query.until is None else min(query.until, now)
        since = max(0.0, until - WEEK_SECONDS) if query.since is None else query.since
        if since > until:
            raise problems.invalid_field(
                "since", Code.TOO_BIG, since, f"at most `until` and now, {until}"
            )
        return since, until

    async def _departments(self, by: str) -> Mapping[str, str]:
        if by != "department":
            return {}
        projects = (await self._deps.ledger.list(Project)).items
        return {one.meta.name: one.spec.department for one in projects}


def _out(record: ScopedRecord) -> PricesOut:
    fields = msgspec.json.decode(record.content, type=PriceFields)
    return PricesOut(
        currency=fields.currency,
        periods=fields.periods,
        changed_at=record.changed_at,
        changed_by=record.changed_by,
    )
