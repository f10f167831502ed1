"""Use, its cost and prices over HTTP."""

from typing import Any, get_args

import pytest

from carrel_scheduler.api.models.queries import UsageKey
from carrel_scheduler.ledger.accounting.spans import GROUPINGS
from contract.api.service import Desk

PRICES: dict[str, Any] = {"currency": "EUR", "periods": [{"gpu_hour": 2.0}]}


async def test_use_is_told_by_every_key_to_those_who_see_it(desk: Desk) -> None:
    await desk.ask("PUT", "/departments/lab", "root", json={})
    await desk.ask("PATCH", "/projects/vision", "root", json={"department": "lab"})
    for by in get_args(UsageKey):
        everything = await desk.ask("GET", f"/usage?by={by}&since=0", "root")
        own = await desk.ask("GET", f"/usage?by={by}&since=0", "carl")
        assert everything.status == own.status == 200
        assert "vision" not in str(own.body["items"])
        assert "lab" not in str(own.body["items"])
    assert (await desk.ask("GET", "/usage?by=planet", "ada")).fields == {"by": "unknown_value"}
    series = await desk.ask("GET", "/usage-series?by=project&since=0&buckets=4", "ada")
    assert len(series.body["times"]) == 4
    assert all(len(line) == 4 for line in series.body["gpu_hours"].values())


async def test_prices_are_written_by_admins_and_counted_with(desk: Desk) -> None:
    assert (await desk.ask("GET", "/usage", "ada")).body["currency"] == ""
    assert (await desk.ask("PUT", "/prices", "ada", json=PRICES)).status == 403
    made = await desk.ask("PUT", "/prices", "root", json=PRICES)
    assert (made.status, made.body["changed_by"]) == (200, "root")
    assert (await desk.ask("GET", "/prices", "ada")).body["periods"][0]["gpu_hour"] == 2.0
    assert (await desk.ask("GET", "/usage", "ada")).body["currency"] == "EUR"


@pytest.mark.parametrize(
    ("periods", "field"),
    [
        ([{"since": 5.0}, {"since": 5.0}], "periods.1.since"),
        ([{"gpu_hour": -1.0}], "periods.0.gpu_hour"),
        ([{"gpu_hours": 1.0}], "periods.0.gpu_hours"),
    ],
)
async def test_wrong_prices_are_refused_by_field(
    desk: Desk, periods: list[dict[str, float]], field: str
) -> None:
    refused = await desk.ask("PUT", "/prices", "root", json={"periods": periods})
    assert (refused.status, list(refused.fields)) == (422, [field])


def test_the_api_takes_the_groupings_of_the_ledger() -> None:
    assert set(get_args(UsageKey)) == set(GROUPINGS)
