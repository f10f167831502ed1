"""Use, its cost and prices over HTTP."""

import csv
import io
import sys
from typing import Any, get_args

import pytest
from pyarrow import parquet

from carrel_scheduler.api.models.queries import UsageKey
from carrel_scheduler.api.services.governance.usage_tables import as_csv, as_parquet
from carrel_scheduler.ledger.accounting.spans import GROUPINGS
from carrel_schema.history import Usage
from contract.api.service import ApiHarness

PRICES: dict[str, Any] = {"currency": "EUR", "periods": [{"gpu_hour": 2.0}]}


async def test_use_is_told_by_every_key_to_those_who_see_it(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/departments/lab", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "lab"})
    for by in get_args(UsageKey):
        everything = await harness.ask("GET", f"/usage?by={by}&since=0", "root")
        own = await harness.ask("GET", f"/usage?by={by}&since=0", "carl")
        assert everything.status == own.status == 200
        assert "vision" not in str(own.body["items"])
        assert "lab" not in str(own.body["items"])
    assert (await harness.ask("GET", "/usage?by=planet", "ada")).fields == {"by": "unknown_value"}
    series = await harness.ask("GET", "/usage-series?by=project&since=0&buckets=4", "ada")
    assert len(series.body["times"]) == 4
    assert all(len(line) == 4 for line in series.body["gpu_hours"].values())


async def test_prices_are_written_by_admins_and_counted_with(harness: ApiHarness) -> None:
    assert (await harness.ask("GET", "/usage", "ada")).body["currency"] == ""
    assert (await harness.ask("PUT", "/prices", "ada", json=PRICES)).status == 403
    made = await harness.ask("PUT", "/prices", "root", json=PRICES)
    assert (made.status, made.body["changed_by"]) == (200, "root")
    assert (await harness.ask("GET", "/prices", "ada")).body["periods"][0]["gpu_hour"] == 2.0
    assert (await harness.ask("GET", "/usage", "ada")).body["currency"] == "EUR"


@pytest.mark.parametrize(
    ("periods", "field"),
    [
        ([{"since": 5.0}, {"since": 5.0}], "periods.1.since"),
        ([{"gpu_hour": -1.0}], "periods.0.gpu_hour"),
        ([{"gpu_hours": 1.0}], "periods.0.gpu_hours"),
    ],
)
async def test_wrong_prices_are_refused_by_field(
    harness: ApiHarness, periods: list[dict[str, float]], field: str
) -> None:
    refused = await harness.ask("PUT", "/prices", "root", json={"periods": periods})
    assert (refused.status, list(refused.fields)) == (422, [field])


def test_the_api_takes_the_groupings_of_the_ledger() -> None:
    assert set(get_args(UsageKey)) == set(GROUPINGS)


async def test_a_table_has_the_same_content_in_every_format(harness: ApiHarness) -> None:
    used = [Usage(key="vision", gpu_seconds=1 / 3, workloads=2), Usage(key="robots", cost=0.1)]
    used.append(Usage(key="=sum(A1)", gpu_seconds=7200.0, preemptions=3))
    table = parquet.read_table(io.BytesIO(as_parquet("project", used)))
    lines = [*csv.DictReader(io.StringIO(as_csv("project", used).decode()))]
    assert [line.pop("project") for line in lines] == ["'=sum(A1)", "vision", "robots"]
    found = table.to_pylist()
    assert [line.pop("project") for line in found] == ["=sum(A1)", "vision", "robots"]
    assert [{name: float(text) for name, text in line.items()} for line in lines] == found
    assert found[1]["gpu_seconds"] == 1 / 3
    assert str(table.schema.field("workloads").type) == "int64"
    answers = [
        await harness.ask("GET", "/usage-table?since=0", "ada"),
        await harness.ask("GET", "/usage-table?since=0&format=csv", "ada"),
    ]
    assert all(one.headers["Content-Type"] == "text/csv; charset=utf-8" for one in answers)
    assert answers[0].raw.decode().splitlines()[0].startswith("project,gpu_seconds")
    binary = await harness.ask(
        "GET", "/usage-table?since=0", "ada", headers={"Accept": "application/vnd.apache.parquet"}
    )
    assert binary.headers["Content-Type"] == "application/vnd.apache.parquet"
    assert parquet.read_table(io.BytesIO(binary.raw)).column_names[0] == "project"
    assert (await harness.ask("GET", "/usage-table?format=pdf", "ada")).status == 422


async def test_without_pyarrow_it_says_what_to_install(
    harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused = await harness.ask("GET", "/usage-table?format=parquet", "ada")
    assert (refused.status, refused.body["code"]) == (409, "library_missing")
    assert "pip install 'jupyter-carrel[parquet]'" in refused.body["detail"]
    assert (await harness.ask("GET", "/usage-table?format=csv", "ada")).status == 200
