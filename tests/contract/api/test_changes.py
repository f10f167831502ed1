"""Changes of work that is there: what may change when, and what a refusal says."""

from typing import Any

import pytest

from carrel_schema.objects.work import Resources
from contract.api.service import ApiHarness, Reply


async def change(harness: ApiHarness, who: str = "ada", **changes: Any) -> Reply:
    return await harness.ask("PATCH", "/workloads/vision/train-1", who, json=changes)


async def test_labels_and_limits_change_while_it_runs(harness: ApiHarness) -> None:
    made = await change(harness, labels={"keep": "yes", "old": "x"}, time_limit_seconds=3600)
    assert made.status == 202, made.body
    assert made.body["spec"]["time_limit_seconds"] == 3600.0
    again = await change(harness, labels={"old": None}, time_limit_seconds=None)
    assert again.body["labels"] == {"keep": "yes"}
    assert "time_limit_seconds" not in again.body["spec"]
    idle = await change(harness, idle_timeout_seconds=60)
    assert (idle.status, idle.code) == (422, "bad_limit")  # it has no GPUs
    assert (await change(harness, "bea", labels={"a": "b"})).status == 403
    assert (await change(harness, command=["x"])).code == "cannot_change"
    many = {f"k{number}": "v" for number in range(64)}
    assert (await change(harness, labels=many)).status == 422


async def test_what_is_done_when_it_stands_still_changes_while_it_runs(harness: ApiHarness) -> None:
    await harness.add("vision", "trains", "ada", resources=Resources(gpu_milli=1000))
    await harness.set_status("vision", "trains", phase="running")

    async def asked(**changes: Any) -> Reply:
        return await harness.ask("PATCH", "/workloads/vision/trains", "ada", json=changes)

    made = await asked(restart_when_stalled=True, stall_after_seconds=600)
    assert made.status == 202, made.body
    spec = (await harness.workload("vision", "trains")).spec
    assert (spec.restart_when_stalled, spec.stall_after_seconds) == (True, 600.0)
    assert (await asked(stall_after_seconds=5)).fields == {"stall_after_seconds": "too_small"}
    assert (await asked(restart_when_stalled=None, stall_after_seconds=None)).status == 202
    spec = (await harness.workload("vision", "trains")).spec
    assert (spec.restart_when_stalled, spec.stall_after_seconds) == (None, None)
    without = await change(harness, restart_when_stalled=True)
    assert (without.status, without.code) == (422, "bad_stall_rule")  # it has no GPUs
    await harness.set_status("vision", "trains", phase="failed")
    assert (await asked(restart_when_stalled=True)).fields == {
        "restart_when_stalled": "cannot_change"
    }


async def test_its_place_in_the_queue_changes_only_while_it_holds_nothing(
    harness: ApiHarness,
) -> None:
    refused = await change(harness, priority="very-high", time_limit_seconds=60)
    assert (refused.status, refused.fields) == (409, {"priority": "cannot_change"})
    assert "it is running" in refused.body["detail"]
    assert (await harness.workload("vision", "train-1")).spec.time_limit_seconds is None
    await harness.set_status("vision", "train-1", phase="pending")
    made = await change(harness, priority="very-high", preemptible=False, tasks=4,
                        elastic={"min_tasks": 2})  # fmt: skip
    assert made.status == 202, made.body
    spec = (await harness.workload("vision", "train-1")).spec
    assert (spec.priority, spec.preemptible, spec.tasks) == ("very-high", False, 4)
    assert spec.elastic is not None
    assert spec.elastic.min_tasks == 2
    assert (await change(harness, priority="highest")).fields == {"priority": "unknown_priority"}
    assert (await change(harness, tasks=1)).status == 422  # below its minimum
    await harness.set_status("vision", "train-1", phase="succeeded")
    ended = await change(harness, priority=1, time_limit_seconds=60)
    assert set(ended.fields) == {"priority", "time_limit_seconds"}
    assert (await change(harness, labels={"a": "b"})).status == 202


@pytest.mark.parametrize(
    ("kind", "changes", "why"),
    [
        ("tensorboard", {"tasks": 2}, "is one task"),
        ("inference", {"preemptible": True}, "submit it again"),
        ("experiment", {"priority": 3}, "submit it again"),
        ("trial", {"time_limit_seconds": 60}, "part of other work"),
        ("inference", {"time_limit_seconds": 60}, "serves until"),
    ],
)
async def test_what_a_kind_cannot_change_is_said(
    harness: ApiHarness, kind: str, changes: dict[str, Any], why: str
) -> None:
    await harness.add("vision", "one", "ada", kind=kind)
    refused = await harness.ask("PATCH", "/workloads/vision/one", json=changes)
    assert refused.status in (409, 422)
    assert why in str(refused.body)
