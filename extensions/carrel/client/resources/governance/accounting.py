"""Use over time, its cost, and prices."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carrel.client.transport import Transport
from carrel_schema.governance.costs import BudgetList, BudgetOut, PricesOut
from carrel_schema.history import Usage, UsageSeries
from carrel_schema.samples import SampleSeries


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Use in a span of time; ``currency`` is that of its costs, empty without prices."""

    items: Sequence[Usage] = ()
    currency: str = ""
    since: float = 0.0
    until: float = 0.0


class AccountingMethods:
    """Read what was used and what it cost; write prices (admins)."""

    _transport: Transport

    async def usage_report(
        self, by: str = "project", *, since: float | None = None, until: float | None = None
    ) -> UsageReport:
        """Use with its currency and the span of time that it is of."""
        parameters = {"by": by, "since": since, "until": until}
        return await self._transport.ask("GET", "/usage", UsageReport, parameters=parameters)

    async def usage_table(
        self,
        by: str = "project",
        *,
        since: float | None = None,
        until: float | None = None,
        form: str = "csv",
    ) -> bytes:
        """The same as a file, in ``csv`` or ``parquet``.

        Raises ``ApiError`` with the code ``library_missing`` where the service cannot write
        Parquet.
        """
        parameters = {"by": by, "since": since, "until": until, "format": form}
        return await self._transport.send("GET", "/usage-table", parameters=parameters)

    async def usage_series(
        self,
        by: str = "project",
        *,
        since: float | None = None,
        until: float | None = None,
        buckets: int = 30,
        largest: int | None = None,
    ) -> UsageSeries:
        """GPU-hours in equal parts of a span of time; ``largest``: of so many that hold most."""
        parameters = {
            "by": by,
            "since": since,
            "until": until,
            "buckets": buckets,
            "largest": largest,
        }
        return await self._transport.ask("GET", "/usage-series", UsageSeries, parameters=parameters)

    async def samples(
        self, subject: str = "cluster", *, since: float | None = None, until: float | None = None
    ) -> SampleSeries:
        """Metrics over time of ``cluster``, ``node/NAME``, ``project/NAME`` and the like."""
        parameters = {"subject": subject, "since": since, "until": until}
        return await self._transport.ask("GET", "/samples", SampleSeries, parameters=parameters)

    async def list_budgets(self) -> Sequence[BudgetOut]:
        """Budgets of what the caller may see, and what of them is used."""
        return (await self._transport.ask("GET", "/budgets", BudgetList)).items

    async def put_budget(self, scope: str, body: Mapping[str, Any]) -> BudgetOut:
        """Give a scope a budget, or another one (administrators)."""
        parameters = {"scope": scope}
        return await self._transport.ask(
            "PUT", "/budget", BudgetOut, parameters=parameters, body=body
        )

    async def delete_budget(self, scope: str) -> None:
        """Take a budget away (administrators)."""
        await self._transport.send("DELETE", "/budget", parameters={"scope": scope})

    async def prices(self) -> PricesOut:
        """The price list."""
        return await self._transport.ask("GET", "/prices", PricesOut)

    async def put_prices(self, body: Mapping[str, Any]) -> PricesOut:
        """Replace the price list (admins)."""
        return await self._transport.ask("PUT", "/prices", PricesOut, body=body)
