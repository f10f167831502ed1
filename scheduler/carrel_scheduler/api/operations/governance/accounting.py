"""Accounting: use, its cost, and the prices."""

from typing import Final

from carrel_scheduler.api.models import answers, queries
from carrel_scheduler.api.operation import Call, Operation, Response
from carrel_scheduler.api.operations.files import attachment
from carrel_scheduler.api.principals.access import AdmittedCallers
from carrel_scheduler.api.services.governance import usage_tables
from carrel_schema.governance.costs import PriceFields, PricesOut
from carrel_schema.history import UsageSeries

PRICES: Final = "/prices"


@Operation(
    "GET",
    "/usage",
    access=AdmittedCallers.USER,
    query=queries.UsageQuery,
    answers={200: answers.UsageList},
)
async def read_usage(call: Call) -> Response:
    """Read use and its cost in a span of time, which ends now at the latest."""
    return Response(await call.services.accounting.usage(call.query, call.visitor.person))


@Operation(
    "GET",
    "/usage-table",
    access=AdmittedCallers.USER,
    query=queries.UsageTableQuery,
    answers={200: bytes},
    media=usage_tables.CSV,
    other_media=(usage_tables.PARQUET,),
    problems=(409,),
)
async def read_usage_table(call: Call) -> Response:
    """Read use and its cost as a table, in CSV or Parquet."""
    query = call.query
    parquet = query.format == "parquet" or (
        query.format is None and usage_tables.PARQUET in call.header("Accept")
    )
    content = await call.services.accounting.table(query, call.visitor.person, parquet=parquet)
    name = f"usage-by-{query.by}.{'parquet' if parquet else 'csv'}"
    media = usage_tables.PARQUET if parquet else f"{usage_tables.CSV}; charset=utf-8"
    return Response(content, headers=attachment(name), media=media)


@Operation(
    "GET",
    "/usage-series",
    access=AdmittedCallers.USER,
    query=queries.UsageSeriesQuery,
    answers={200: UsageSeries},
)
async def read_usage_series(call: Call) -> Response:
    """Read GPU-hours over a span of time, in equal parts."""
    return Response(await call.services.accounting.series(call.query, call.visitor.person))


@Operation("GET", PRICES, access=AdmittedCallers.USER, answers={200: PricesOut})
async def read_prices(call: Call) -> Response:
    """Read the price list."""
    return Response(await call.services.accounting.prices())


@Operation(
    "PUT",
    PRICES,
    access=AdmittedCallers.ADMIN,
    permission="prices:update",
    body=PriceFields,
    answers={200: PricesOut},
)
async def put_prices(call: Call) -> Response:
    """Replace the price list; past costs are computed from it, too."""
    return Response(await call.services.accounting.put_prices(call.body, call.visitor.person))


OPERATIONS: Final = (read_usage, read_usage_table, read_usage_series, read_prices, put_prices)
