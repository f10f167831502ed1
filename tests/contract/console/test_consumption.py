"""Consumption in the console: sums, curves, CSV."""

import json
from collections.abc import AsyncIterator

import pytest

from contract.console.site import START, Site, Visitor

LINES = {
    "currency": "EUR",
    "items": [
        {"key": "speech", "gpu_seconds": 3600.0, "cpu_seconds": 7200.0, "cost": 2.5},
        {"key": "=vision", "gpu_seconds": 9000.0, "borrowed_gpu_seconds": 1800.0, "cost": 5.0},
    ],
    "times": [START - 7200, START - 3600],
    "gpu_hours": {"speech": [0.5, 0.5], "=vision": [1.0, 1.5]},
}


@pytest.fixture
async def ada(site: Site) -> AsyncIterator[Visitor]:
    site.scheduler.usage_facts.update(LINES)
    async with Visitor(site, "ada") as visitor:
        yield visitor


async def test_the_largest_comes_first_and_all_is_summed_up(ada: Visitor) -> None:
    page = await ada.get("usage?by=project&days=30")
    assert page.status == 200
    assert "=vision 2.50 0.50 0.00 0.00 0.00 0.00" in page.words
    assert page.words.index("=vision 2.50") < page.words.index("speech 1.00")
    assert "All 3.50 0.50" in page.words
    assert "Cost (EUR)" in page.words
    assert "7.50" in page.words


async def test_curves_and_csv_are_of_the_same_time(ada: Visitor) -> None:
    curves = await ada.get("usage-curves?by=project&days=1")
    drawn = json.loads(curves.text)["runs"]
    assert [one["label"] for one in drawn] == ["=vision", "speech"]
    points = drawn[0]["curves"]["GPU-hours per hour, until now"]
    assert points == [[-1, START - 7200, 1.0], [0, START - 3600, 1.5]]
    table = await ada.get("usage.csv?by=project&days=7")
    assert table.text.splitlines() == ["project", "speech", "=vision"]
    assert table.headers["Content-Type"] == "text/csv; charset=utf-8"
    binary = await ada.get("usage.parquet?by=project&days=7")
    assert binary.headers["Content-Type"] == "application/vnd.apache.parquet"
    assert 'filename="usage-by-project-7-days.parquet"' in binary.headers["Content-Disposition"]


async def test_gpu_types_and_groups_of_nodes_are_offered(ada: Visitor) -> None:
    page = await ada.get("usage?by=gpu-type&days=7")
    assert (page.status, "GPU type GPU-hours Borrowed" in page.words) == (200, True)
    assert all(f"usage?by={by}" in page.text for by in ("gpu-type", "node-group", "workload"))
    table = await ada.get("usage.csv?by=node-group&days=7")
    assert table.text.startswith("node-group\n")


@pytest.mark.parametrize("query", ["by=planet&days=7", "by=user&days=8", "by=user&days=x"])
async def test_what_is_not_offered_is_refused(ada: Visitor, query: str) -> None:
    assert (await ada.get(f"usage?{query}")).status == 400


async def test_budgets_are_told_in_hours_and_in_money(site: Site, ada: Visitor) -> None:
    amounts = {"gpu_hours": 50.0, "used_gpu_hours": 12.5, "cost": 100.0, "used_cost": 30.0}
    scope = "project/vision"
    site.scheduler.budgets[scope] = {"scope": scope, "currency": "EUR", **amounts}
    words = (await ada.get("usage?by=project&days=7")).words
    assert f"{scope} 12.5 50 GPU-hours 25% month" in words
    assert f"{scope} 30.0 100 EUR 30% month" in words
    assert "lowest priority" not in words
    site.scheduler.budgets[scope] |= {"at_end": "lower-priority", "used_gpu_hours": 50.0}
    words = (await ada.get("usage?by=project&days=7")).words
    assert "month, then the lowest priority Its new and pending work has the lowest" in words
    assert words.count("lowest priority now") == 1, "of what is used up"
