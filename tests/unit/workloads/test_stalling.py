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
from unit.workloads.desk import Desk


async def gang(desk: Desk, reaction: Reaction = "tell") -> str:
    desk.stall_rule = StallRule(after_s=600.0, reaction=reaction)
    await desk.recover()
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "gang", kind="distributed", tasks=2)
    await desk.runs(uid)
    await desk.gpus_work()
    return uid


async def reason(desk: Desk, uid: str) -> str:
    found = (await desk.stored(uid)).status.reason
    return "" if found is None else found.sentence


async def test_the_owner_is_told_once_and_no_more_when_it_goes_on(desk: Desk) -> None:
    uid = await gang(desk)
    await desk.wait(590.0)
    assert await reason(desk, uid) == ""
    await desk.wait(60.0)
    assert await reason(desk, uid) == ("It stands still: no GPU work and no report for 10 min.")
    await desk.wait(600.0)
    assert await desk.phase(uid) == "running"
    rows = await desk.ledger.transitions(workload_uid=uid)
    assert [row.reason.token for row in rows if row.reason].count("Stalled") == 1
    await desk.gpus_work(0)
    assert await reason(desk, uid) == ""


@pytest.mark.parametrize("sign", ["a report", "one GPU works", "not measured", "no gang"])
async def test_whoever_gives_a_sign_does_not_stand_still(desk: Desk, sign: str) -> None:
    uid = await gang(desk)
    if sign == "no gang":
        uid = await desk.submit("vision", "alone")
        await desk.runs(uid)
    if sign == "not measured":
        desk.busy = None
    for _ in range(30):
        await desk.wait(60.0)
        if sign == "a report":
            await LiveState(desk.loop).report(uid, Report(at=desk.now, step=1))
        if sign == "one GPU works":
            await desk.gpus_work(1)
            await desk.gpus_work()
        assert await reason(desk, uid) == ""


async def test_by_the_admins_choice_the_workers_start_again_and_it_counts(desk: Desk) -> None:
    uid = await gang(desk, reaction="restart")
    await desk.wait(660.0)
    assert len(desk.engine.stopping) == 2
    assert "no GPU work and no report for 10 min" in await reason(desk, uid)
    await desk.ends(uid, None, signal=15)
    stored = await desk.stored(uid)
    assert (stored.status.phase, stored.status.failures) == ("pending", 1)


async def test_a_job_of_one_task_is_restarted_by_its_own_rule_and_its_owner_reads_why(
    desk: Desk,
) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit(
        "vision",
        "alone",
        restart_when_stalled=True,
        stall_after_seconds=300.0,
        retries=Retries(stalled=1),
    )
    for attempt in (1, 2):
        await desk.runs(uid)
        await desk.gpus_work()
        await desk.wait(290.0)
        assert desk.engine.stopping == {}
        await desk.wait(30.0)
        assert len(desk.engine.stopping) == 1
        await desk.ends(uid, 0)
        status = (await desk.stored(uid)).status
        assert status.failures == attempt
        assert status.last_failure is not None
        assert status.last_failure.cls == "stalled"
        if attempt == 1:
            told = "It stood still: no GPU work and no report for 5 min"
            assert (await reason(desk, uid)).startswith(told)
            await desk.wait(10.0)
    assert status.phase == "failed"
    assert "its back-off limit is 1" in await reason(desk, uid)


async def test_a_rule_that_is_changed_counts_at_once_also_for_work_that_stands_still(
    desk: Desk,
) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "alone", stall_after_seconds=300.0)
    await desk.runs(uid)
    await desk.gpus_work()
    await desk.wait(330.0)
    assert "stands still" in await reason(desk, uid)
    assert desk.engine.stopping == {}
    await desk.change(uid, restart_when_stalled=True)
    await desk.wait(30.0)
    assert len(desk.engine.stopping) == 1


async def test_a_gangs_own_word_counts_more_than_the_clusters(desk: Desk) -> None:
    desk.stall_rule = StallRule(after_s=600.0, reaction="restart")
    await desk.recover()
    await desk.project("vision", 4)
    gang: dict[str, Any] = {"kind": "distributed", "tasks": 2}
    told = await desk.submit("vision", "told", **gang, restart_when_stalled=False)
    late = await desk.submit("vision", "late", **gang, stall_after_seconds=3600.0)
    await desk.runs(told, late)
    await desk.gpus_work()
    await desk.wait(660.0)
    assert "stands still" in await reason(desk, told)
    assert await reason(desk, late) == ""
    assert desk.engine.stopping == {}
    await desk.wait(3000.0)
    assert {task.workload_uid for task in desk.engine.stopping} == {late}


def test_where_the_cluster_looks_for_nothing_own_rules_hold_and_other_kinds_have_none() -> None:
    off = StallRule(after_s=0.0)
    own = WorkloadSpec(restart_when_stalled=True)
    assert rule_of(own, off) == StallRule(1800.0, "restart")
    assert rule_of(WorkloadSpec(), StallRule()).after_s == 0.0
    assert rule_of(WorkloadSpec(tasks=2), StallRule()) == StallRule()
    desk = WorkloadSpec(kind="workspace", restart_when_stalled=True)
    assert rule_of(desk, StallRule()).after_s == 0.0


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
