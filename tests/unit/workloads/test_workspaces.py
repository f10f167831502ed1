"""Workspaces in the loop, in virtual time: limits, queueing, giving way."""

from typing import Any

import msgspec
import pytest

from carrel_schema.objects import InteractiveLimits
from unit.workloads.desk import Desk


async def test_t11_the_time_limit_stops_a_workspace_and_it_can_start_again(desk: Desk) -> None:
    rule = InteractiveLimits(time_limit_seconds=60.0, warn_before_seconds=10.0)
    await desk.project("vision", 2, interactive=rule)
    uid = await desk.submit("vision", "workspace-ada", kind="workspace")
    await desk.runs(uid)
    limits = (await desk.stored(uid)).status.limits
    assert limits is not None
    assert limits.stops_at is not None
    assert limits.warn_at == pytest.approx(limits.stops_at - 10)
    await desk.wait(59.0)
    assert await desk.phase(uid) == "running"
    await desk.wait(1.1)
    assert await desk.phase(uid) == "stopping"
    await desk.ends(uid, 0)
    stopped = (await desk.stored(uid)).status
    assert stopped.phase == "stopped"
    assert stopped.reason is not None
    assert stopped.reason.token == "TimedOut"
    await desk.resume(uid)
    assert await desk.phase(uid) == "starting"


async def test_t12_an_idle_workspace_is_stopped_and_any_gpu_work_resets(desk: Desk) -> None:
    await desk.project("vision", 2, interactive=InteractiveLimits(idle_timeout_seconds=120.0))
    uid = await desk.submit("vision", "workspace-ada", 1, kind="workspace")
    await desk.runs(uid)
    await desk.gpus_work()
    await desk.wait(119.0)
    (task,) = desk.engine.alive.values()
    await desk.gpus_work(*task.devices)
    await desk.gpus_work()
    await desk.wait(100.0)
    assert await desk.phase(uid) == "running"
    await desk.wait(21.0)
    assert await desk.phase(uid) == "stopping"
    reason = (await desk.stored(uid)).status.reason
    assert reason is not None
    assert reason.token == "Idle"


async def test_a_changed_rule_holds_for_running_workspaces_only_when_asked(desk: Desk) -> None:
    project = await desk.project("vision", 2)
    uid = await desk.submit("vision", "workspace-ada", kind="workspace")
    await desk.runs(uid)
    project.spec = msgspec.structs.replace(
        project.spec, interactive=InteractiveLimits(time_limit_seconds=60.0)
    )
    project = await desk.ledger.update(project)
    await desk.recover()
    await desk.wait(120.0)
    assert await desk.phase(uid) == "running"
    project.spec = msgspec.structs.replace(
        project.spec, interactive=InteractiveLimits(time_limit_seconds=60.0, apply_to_running=True)
    )
    await desk.ledger.update(project)
    await desk.recover()
    assert await desk.phase(uid) == "stopping"


async def test_after_a_crash_a_computing_workspace_is_not_idle_before_it_could_say_so(
    desk: Desk,
) -> None:
    await desk.project("vision", 2, interactive=InteractiveLimits(idle_timeout_seconds=60.0))
    uid = await desk.submit("vision", "workspace-ada", user="ada", kind="workspace")
    await desk.runs(uid)
    began = desk.now
    for _ in range(10):
        await desk.computes("ada", since=began)
        await desk.wait(10.0)
    await desk.recover()
    await desk.wait(50.0)
    assert await desk.phase(uid) == "running"
    await desk.computes("ada", since=began)
    await desk.wait(59.0)
    assert await desk.phase(uid) == "running"


async def test_after_a_crash_silence_ends_and_the_time_limit_strikes_on_time(desk: Desk) -> None:
    idle = InteractiveLimits(idle_timeout_seconds=60.0)
    await desk.project("vision", 2, interactive=idle)
    await desk.project("speech", 2, interactive=InteractiveLimits(time_limit_seconds=100.0))
    silent = await desk.submit("vision", "workspace-ada", kind="workspace")
    limited = await desk.submit("speech", "workspace-grace", kind="workspace")
    await desk.runs(silent, limited)
    await desk.gpus_work()
    await desk.wait(50.0)
    await desk.recover()
    await desk.wait(49.0)
    assert await desk.phases(silent, limited) == ["running", "running"]
    await desk.wait(1.1)
    assert await desk.phases(silent, limited) == ["running", "stopping"]
    await desk.wait(40.0)
    assert await desk.phase(silent) == "stopping"


async def test_t5_a_workspace_beyond_quota_waits_and_says_why(desk: Desk) -> None:
    await desk.project("vision", 1)
    await desk.project("speech", 1)
    uid = await desk.submit("vision", "workspace-ada", 2, kind="workspace")
    status = (await desk.stored(uid)).status
    assert status.phase == "pending"
    assert status.reason is not None
    assert status.reason.token == "NonPreemptibleBeyondQuota"
    borrowing = await desk.submit("vision", "workspace-b", 2, kind="workspace", preemptible=True)
    assert await desk.phase(borrowing) == "starting"


async def borrowed_desk(desk: Desk, **fields: Any) -> str:
    """A running preemptible workspace on what another project then claims; it has given way."""
    await desk.project("vision", 0)
    await desk.project("speech", 4)
    borrowing: dict[str, Any] = {"kind": "workspace", "preemptible": True, **fields}
    uid = await desk.submit("vision", "workspace-ada", 2, **borrowing)
    await desk.runs(uid)
    claim = await desk.submit("speech", "train-1", 4)
    assert await desk.phases(uid, claim) == ["preempting", "pending"]
    await desk.ends(uid, 143)
    await desk.runs(claim)
    assert await desk.phase(claim) == "running"
    await desk.ends(claim)
    return uid


async def test_a_workspace_that_gave_way_is_stopped_and_waits_for_nobody(desk: Desk) -> None:
    uid = await borrowed_desk(desk, port=4711)
    status = (await desk.stored(uid)).status
    assert (status.phase, status.preemptions, status.attempt) == ("stopped", 1, 1)
    assert status.reason is not None
    assert "was preempted by `speech`" in status.reason.sentence
    assert desk.hub.asked == []
    assert desk.loop.state.jobs.by_uid.get(uid) is None


@pytest.mark.parametrize(("port", "asked"), [(4711, ["workspace-ada"]), (None, [])])
async def test_only_the_hubs_workspaces_come_back_through_the_hub(
    desk: Desk, port: int | None, asked: list[str]
) -> None:
    uid = await borrowed_desk(desk, port=port)
    await desk.resume(uid)
    assert await desk.phase(uid) == "starting"
    assert desk.hub.asked == asked
    again = [task.attempt for task in desk.engine.specs if task.workload_uid == uid]
    assert again == ([0] if asked else [0, 1])


async def test_t6_a_workspace_takes_room_from_its_own_projects_training(desk: Desk) -> None:
    await desk.project("a", 2)
    await desk.project("b", 2)
    theirs = [await desk.submit("b", f"b{n}") for n in range(2)]
    ours = [await desk.submit("a", f"a{n}") for n in range(2)]
    await desk.runs(*theirs, *ours)
    workspace = await desk.submit("a", "workspace-ada", 1, kind="workspace")
    phases = await desk.phases(*ours)
    assert sorted(phases) == ["preempting", "running"]
    assert await desk.phases(*theirs) == ["running", "running"]
    victim = ours[phases.index("preempting")]
    await desk.ends(victim, 143)
    assert await desk.phase(workspace) == "starting"


async def test_a_queued_workspace_is_started_through_the_hub_and_released_if_nobody_comes(
    desk: Desk,
) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "workspace-ada", 1, kind="workspace", hold_for_claim=True)
    assert await desk.phase(uid) == "starting"
    assert desk.hub.asked == ["workspace-ada"]
    assert desk.engine.specs == {}
    await desk.wait(121.0)
    status = (await desk.stored(uid)).status
    assert status.phase == "stopped"
    assert status.reason is not None
    assert status.reason.token == "NotClaimed"
    other = await desk.submit("vision", "train", 2)
    assert await desk.phase(other) == "starting"
