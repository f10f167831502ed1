"""Budgets over HTTP: what is used of them, who sees them, and new work when they are used up."""

from typing import Any

from carrel_scheduler.ledger.records import Transition
from carrel_scheduler.policy.budgets import BudgetUse
from contract.api.service import ApiHarness

JOB = {"project": "vision", "name": "a", "command": ["true"], "gpus": 1}
HOUR = 3600.0


async def use(harness: ApiHarness, user: str, project: str, hours: float) -> None:
    """One GPU for so many hours, until now."""
    now = harness.clock.now
    held: dict[str, Any] = {"gpu_milli": 1000, "workload": "w", "project": project, "user": user}
    rows = [
        Transition(
            at=now - hours * HOUR, workload_uid=f"{user}-{hours}", to_phase="running", **held
        ),
        Transition(
            at=now,
            workload_uid=f"{user}-{hours}",
            from_phase="running",
            to_phase="succeeded",
            **(held | {"gpu_milli": 0}),
        ),
    ]
    await harness.ledger.record(epoch=await harness.ledger.begin_epoch(), transitions=rows)


async def test_a_budget_counts_and_refuses_new_work_with_gpus(harness: ApiHarness) -> None:
    await use(harness, "ada", "vision", 10)
    body = {"gpu_hours": 40, "period": "total", "at_end": "refuse"}
    made = await harness.ask("PUT", "/budget?scope=project/vision", "root", json=body)
    assert (made.status, round(made.body["used_gpu_hours"])) == (200, 10)
    assert (await harness.ask("POST", "/workloads", "ada", json=JOB)).status == 201
    await use(harness, "bea", "vision", 31)
    harness.clock.now += 61
    refused = await harness.ask("POST", "/workloads", "ada", json=JOB | {"name": "b"})
    assert (refused.status, refused.code) == (403, "budget_used_up")
    assert "41.0 of 40 GPU-hours in all." in refused.body["detail"]
    batch = {"items": [JOB | {"name": "c"}]}
    told = await harness.ask("POST", "/workloads:batch", "ada", json=batch)
    assert told.body["items"][0]["problem"]["code"] == "budget_used_up"
    free = await harness.ask("POST", "/workloads", "ada", json=JOB | {"name": "d", "gpus": 0})
    assert free.status == 201
    await harness.ask("PUT", "/budget?scope=project/vision", "root", json=body | {"at_end": "warn"})
    assert (await harness.ask("POST", "/workloads", "ada", json=JOB | {"name": "e"})).status == 201


async def test_a_budget_that_lowers_priorities_refuses_nothing(harness: ApiHarness) -> None:
    body = {"gpu_hours": 10, "period": "total", "at_end": "lower-priority"}
    made = await harness.ask("PUT", "/budget?scope=project/vision", "root", json=body)
    assert (made.status, made.body["at_end"]) == (200, "lower-priority")
    use_of = BudgetUse(harness.ledger, harness.clock)
    assert await use_of.lowering() == frozenset()
    await use(harness, "ada", "vision", 11)
    assert await use_of.lowering() == frozenset(), "known for a minute"
    harness.clock.now += 61
    assert await use_of.lowering() == {"project/vision"}
    assert (await harness.ask("POST", "/workloads", "ada", json=JOB)).status == 201
    wrong = body | {"at_end": "stop"}
    refused = await harness.ask("PUT", "/budget?scope=project/vision", "root", json=wrong)
    assert refused.fields == {"at_end": "unknown_value"}


async def test_each_sees_the_budgets_of_what_they_see(harness: ApiHarness) -> None:
    await harness.ask("PUT", "/departments/sciences", "root", json={})
    await harness.ask("PATCH", "/projects/vision", "root", json={"department": "sciences"})
    await use(harness, "ada", "vision", 3)
    await use(harness, "carl", "speech", 5)
    body = {"gpu_hours": 100, "period": "total"}
    for scope in ("platform", "department/sciences", "project/speech", "user/ada"):
        made = await harness.ask("PUT", f"/budget?scope={scope}", "root", json=body)
        assert made.status == 200, made.body
    found = (await harness.ask("GET", "/budgets", "root")).body["items"]
    used = {one["scope"]: round(one["used_gpu_hours"]) for one in found}
    assert used == {"platform": 8, "department/sciences": 3, "project/speech": 5, "user/ada": 3}
    seen = {one["scope"] for one in (await harness.ask("GET", "/budgets", "ada")).body["items"]}
    assert seen == {"user/ada"}
    denied = await harness.ask("PUT", "/budget?scope=user/ada", "ada", json=body)
    assert denied.status == 403
    unknown = await harness.ask("PUT", "/budget?scope=project/nowhere", "root", json=body)
    assert unknown.status == 404
    wrong = await harness.ask("PUT", "/budget?scope=platform", "root", json={"gpu_hours": -1})
    assert (wrong.status, wrong.fields) == (422, {"gpu_hours": "too_small"})
    assert (await harness.ask("DELETE", "/budget?scope=user/ada", "root")).status == 204
    assert (await harness.ask("DELETE", "/budget?scope=user/ada", "root")).status == 404


async def test_use_leaves_a_sliding_week_after_seven_days(harness: ApiHarness) -> None:
    await use(harness, "ada", "vision", 10)
    body = {"gpu_hours": 100, "period": "sliding-week"}
    await harness.ask("PUT", "/budget?scope=project/vision", "root", json=body)
    used = []
    for hours in (0, 24, 6 * 24):  # The workload of ``ApiHarness`` runs on with one GPU.
        harness.clock.now += hours * HOUR
        used.append(
            (await harness.ask("GET", "/budgets", "root")).body["items"][0]["used_gpu_hours"]
        )
    assert [round(one) for one in used] == [10, 34, 168]


async def test_a_budget_in_money_follows_the_price_list(harness: ApiHarness) -> None:
    await use(harness, "ada", "vision", 10)
    body: dict[str, Any] = {"cost": 50, "period": "total", "at_end": "refuse"}
    address = "/budget?scope=project/vision"
    without = await harness.ask("PUT", address, "root", json=body)
    assert (without.status, "carrel prices set" in without.body["detail"]) == (409, True)
    empty = await harness.ask("PUT", address, "root", json={"period": "total"})
    assert (empty.status, empty.fields) == (422, {"gpu_hours": "missing_field"})
    prices = {"currency": "EUR", "periods": [{"gpu_hour": 2.0}]}
    await harness.ask("PUT", "/prices", "root", json=prices)
    made = await harness.ask("PUT", address, "root", json=body)
    assert (made.status, made.body["currency"]) == (200, "EUR")
    assert round(made.body["used_cost"]) == 20
    assert (await harness.ask("POST", "/workloads", "ada", json=JOB)).status == 201
    await harness.ask("PUT", "/prices", "root", json=prices | {"periods": [{"gpu_hour": 6.0}]})
    harness.clock.now += 61
    refused = await harness.ask("POST", "/workloads", "ada", json=JOB | {"name": "b"})
    assert (refused.status, refused.code) == (403, "budget_used_up")
    assert "60.3 of 50 EUR in all." in refused.body["detail"]
    both = await harness.ask("PUT", address, "root", json=body | {"cost": 100, "gpu_hours": 10})
    assert both.status == 200
    refused = await harness.ask("POST", "/workloads", "ada", json=JOB | {"name": "b"})
    assert "10.0 of 10 GPU-hours in all." in refused.body["detail"]
