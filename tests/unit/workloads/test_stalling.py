"""Gangs that run and do nothing: their owner is told, or the workers start again together."""

from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.environment import InvalidVariable
from carrel_scheduler.service.settings import ServiceSettings
from carrel_scheduler.workloads.gangs.stalling import Reaction, StallRule, rule_of
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_schema.history import Report
from carrel_schema.objects import WorkloadSpec
from carrel_schema.sections import Retries
from unit.workloads.harness import SchedulerHarness


async def gang(harness: SchedulerHarness, reaction: Reaction = "tell") -> str:
    harness.stall_rule = StallRule(after_s=600.0, reaction=reaction)
    await harness.recover()
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "gang", kind="distributed", tasks=2)
    await harness.runs(uid)
    await harness.gpus_work()
    return uid


async def reason(harness: SchedulerHarness, uid: str) -> str:
    found = (await harness.stored(uid)).status.reason
    return "" if found is None else found.sentence


async def test_the_owner_is_told_once_and_no_more_when_it_goes_on(
    harness: SchedulerHarness,
) -> None:
    uid = await gang(harness)
    await harness.wait(590.0)
    assert await reason(harness, uid) == ""
    await harness.wait(60.0)
    assert await reason(harness, uid) == ("It stands still: no GPU work and no report for 10 min.")
    await harness.wait(600.0)
    assert await harness.phase(uid) == "running"
    rows = await harness.ledger.transitions(workload_uid=uid)
    assert [row.reason.token for row in rows if row.reason].count("Stalled") == 1
    await harness.gpus_work(0)
    assert await reason(harness, uid) == ""


@pytest.mark.parametrize("sign", ["a report", "one GPU works", "not measured", "no gang"])
async def test_whoever_gives_a_sign_does_not_stand_still(
    harness: SchedulerHarness, sign: str
) -> None:
    uid = await gang(harness)
    if sign == "no gang":
        uid = await harness.submit("vision", "alone")
        await harness.runs(uid)
    if sign == "not measured":
        harness.busy = None
    for _ in range(30):
        await harness.wait(60.0)
        if sign == "a report":
            await LiveState(harness.loop).report(uid, Report(at=harness.now, step=1))
        if sign == "one GPU works":
            await harness.gpus_work(1)
            await harness.gpus_work()
        assert await reason(harness, uid) == ""


async def test_by_the_admins_choice_the_workers_start_again_and_it_counts(
    harness: SchedulerHarness,
) -> None:
    uid = await gang(harness, reaction="restart")
    await harness.wait(660.0)
    assert len(harness.engine.stopping) == 2
    assert "no GPU work and no report for 10 min" in await reason(harness, uid)
    await harness.ends(uid, None, signal=15)
    stored = await harness.stored(uid)
    assert (stored.status.phase, stored.status.failures) == ("pending", 1)


async def test_a_job_of_one_task_is_restarted_by_its_own_rule_and_its_owner_reads_why(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit(
        "vision",
        "alone",
        restart_when_stalled=True,
        stall_after_seconds=300.0,
        retries=Retries(stalled=1),
    )
    for attempt in (1, 2):
        await harness.runs(uid)
        await harness.gpus_work()
        await harness.wait(290.0)
        assert harness.engine.stopping == {}
        await harness.wait(30.0)
        assert len(harness.engine.stopping) == 1
        await harness.ends(uid, 0)
        status = (await harness.stored(uid)).status
        assert status.failures == attempt
        assert status.last_failure is not None
        assert status.last_failure.cls == "stalled"
        if attempt == 1:
            told = "It stood still: no GPU work and no report for 5 min"
            assert (await reason(harness, uid)).startswith(told)
            await harness.wait(10.0)
    assert status.phase == "failed"
    assert "its back-off limit is 1" in await reason(harness, uid)


async def test_a_rule_that_is_changed_counts_at_once_also_for_work_that_stands_still(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "alone", stall_after_seconds=300.0)
    await harness.runs(uid)
    await harness.gpus_work()
    await harness.wait(330.0)
    assert "stands still" in await reason(harness, uid)
    assert harness.engine.stopping == {}
    await harness.change(uid, restart_when_stalled=True)
    await harness.wait(30.0)
    assert len(harness.engine.stopping) == 1


async def test_a_gangs_own_word_counts_more_than_the_clusters(harness: SchedulerHarness) -> None:
    harness.stall_rule = StallRule(after_s=600.0, reaction="restart")
    await harness.recover()
    await harness.project("vision", 4)
    gang: dict[str, Any] = {"kind": "distributed", "tasks": 2}
    told = await harness.submit("vision", "told", **gang, restart_when_stalled=False)
    late = await harness.submit("vision", "late", **gang, stall_after_seconds=3600.0)
    await harness.runs(told, late)
    await harness.gpus_work()
    await harness.wait(660.0)
    assert "stands still" in await reason(harness, told)
    assert await reason(harness, late) == ""
    assert harness.engine.stopping == {}
    await harness.wait(3000.0)
    assert {task.workload_uid for task in harness.engine.stopping} == {late}


def test_where_the_cluster_looks_for_nothing_own_rules_hold_and_other_kinds_have_none() -> None:
    off = StallRule(after_s=0.0)
    own = WorkloadSpec(restart_when_stalled=True)
    assert rule_of(own, off) == StallRule(1800.0, "restart")
    assert rule_of(WorkloadSpec(), StallRule()).after_s == 0.0
    assert rule_of(WorkloadSpec(tasks=2), StallRule()) == StallRule()
    workspace = WorkloadSpec(kind="workspace", restart_when_stalled=True)
    assert rule_of(workspace, StallRule()).after_s == 0.0


def test_nothing_is_looked_for_where_the_admin_says_so(tmp_path: Path) -> None:
    told = {
        "CARREL_STATE_DIR": str(tmp_path),
        "JUPYTERHUB_SERVICE_PREFIX": "/services/carrel/",
        "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:1/",
        "JUPYTERHUB_API_URL": "http://127.0.0.1:2/hub/api",
        "JUPYTERHUB_API_TOKEN": "t",
    }
    assert ServiceSettings.from_environment(told).stall_rule == StallRule(1800.0, "tell")
    chosen = {"CARREL_STALLED_AFTER": "0", "CARREL_STALLED_GANGS": "restart"}
    assert ServiceSettings.from_environment(told | chosen).stall_rule == StallRule(0.0, "restart")
    with pytest.raises(InvalidVariable, match="`tell` or `restart`"):
        ServiceSettings.from_environment(told | {"CARREL_STALLED_GANGS": "kill"})
