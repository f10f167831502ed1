"""Workspaces in the loop, in virtual time: limits, queueing, giving way."""

from typing import Any

import msgspec
import pytest

from carrel_schema.objects import InteractiveLimits
from unit.workloads.harness import SchedulerHarness


async def test_t11_the_time_limit_stops_a_workspace_and_it_can_start_again(
    harness: SchedulerHarness,
) -> None:
    rule = InteractiveLimits(time_limit_seconds=60.0, warn_before_seconds=10.0)
    await harness.project("vision", 2, interactive=rule)
    uid = await harness.submit("vision", "workspace-ada", kind="workspace")
    await harness.runs(uid)
    limits = (await harness.stored(uid)).status.limits
    assert limits is not None
    assert limits.stops_at is not None
    assert limits.warn_at == pytest.approx(limits.stops_at - 10)
    await harness.wait(59.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.1)
    assert await harness.phase(uid) == "stopping"
    await harness.ends(uid, 0)
    stopped = (await harness.stored(uid)).status
    assert stopped.phase == "stopped"
    assert stopped.reason is not None
    assert stopped.reason.token == "TimedOut"
    await harness.resume(uid)
    assert await harness.phase(uid) == "starting"


async def test_t12_an_idle_workspace_is_stopped_and_any_gpu_work_resets(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2, interactive=InteractiveLimits(idle_timeout_seconds=120.0))
    uid = await harness.submit("vision", "workspace-ada", 1, kind="workspace")
    await harness.runs(uid)
    await harness.gpus_work()
    await harness.wait(119.0)
    (task,) = harness.engine.alive.values()
    await harness.gpus_work(*task.devices)
    await harness.gpus_work()
    await harness.wait(100.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(21.0)
    assert await harness.phase(uid) == "stopping"
    reason = (await harness.stored(uid)).status.reason
    assert reason is not None
    assert reason.token == "Idle"


async def test_a_changed_rule_holds_for_running_workspaces_only_when_asked(
    harness: SchedulerHarness,
) -> None:
    project = await harness.project("vision", 2)
    uid = await harness.submit("vision", "workspace-ada", kind="workspace")
    await harness.runs(uid)
    project.spec = msgspec.structs.replace(
        project.spec, interactive=InteractiveLimits(time_limit_seconds=60.0)
    )
    project = await harness.ledger.update(project)
    await harness.recover()
    await harness.wait(120.0)
    assert await harness.phase(uid) == "running"
    project.spec = msgspec.structs.replace(
        project.spec, interactive=InteractiveLimits(time_limit_seconds=60.0, apply_to_running=True)
    )
    await harness.ledger.update(project)
    await harness.recover()
    assert await harness.phase(uid) == "stopping"


async def test_after_a_crash_a_computing_workspace_is_not_idle_before_it_could_say_so(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2, interactive=InteractiveLimits(idle_timeout_seconds=60.0))
    uid = await harness.submit("vision", "workspace-ada", user="ada", kind="workspace")
    await harness.runs(uid)
    began = harness.now
    for _ in range(10):
        await harness.computes("ada", since=began)
        await harness.wait(10.0)
    await harness.recover()
    await harness.wait(50.0)
    assert await harness.phase(uid) == "running"
    await harness.computes("ada", since=began)
    await harness.wait(59.0)
    assert await harness.phase(uid) == "running"


async def test_after_a_crash_silence_ends_and_the_time_limit_strikes_on_time(
    harness: SchedulerHarness,
) -> None:
    idle = InteractiveLimits(idle_timeout_seconds=60.0)
    await harness.project("vision", 2, interactive=idle)
    await harness.project("speech", 2, interactive=InteractiveLimits(time_limit_seconds=100.0))
    silent = await harness.submit("vision", "workspace-ada", kind="workspace")
    limited = await harness.submit("speech", "workspace-grace", kind="workspace")
    await harness.runs(silent, limited)
    await harness.gpus_work()
    await harness.wait(50.0)
    await harness.recover()
    await harness.wait(49.0)
    assert await harness.phases(silent, limited) == ["running", "running"]
    await harness.wait(1.1)
    assert await harness.phases(silent, limited) == ["running", "stopping"]
    await harness.wait(40.0)
    assert await harness.phase(silent) == "stopping"


async def test_t5_a_workspace_beyond_quota_waits_and_says_why(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    await harness.project("speech", 1)
    uid = await harness.submit("vision", "workspace-ada", 2, kind="workspace")
    status = (await harness.stored(uid)).status
    assert status.phase == "pending"
    assert status.reason is not None
    assert status.reason.token == "NonPreemptibleBeyondQuota"
    borrowing = await harness.submit("vision", "workspace-b", 2, kind="workspace", preemptible=True)
    assert await harness.phase(borrowing) == "starting"


async def borrowed_workspace(harness: SchedulerHarness, **fields: Any) -> str:
    """A running preemptible workspace on what another project then claims; it has given way."""
    await harness.project("vision", 0)
    await harness.project("speech", 4)
    borrowing: dict[str, Any] = {"kind": "workspace", "preemptible": True, **fields}
    uid = await harness.submit("vision", "workspace-ada", 2, **borrowing)
    await harness.runs(uid)
    claim = await harness.submit("speech", "train-1", 4)
    assert await harness.phases(uid, claim) == ["preempting", "pending"]
    await harness.ends(uid, 143)
    await harness.runs(claim)
    assert await harness.phase(claim) == "running"
    await harness.ends(claim)
    return uid


async def test_a_workspace_that_gave_way_is_stopped_and_waits_for_nobody(
    harness: SchedulerHarness,
) -> None:
    uid = await borrowed_workspace(harness, port=4711)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.preemptions, status.attempt) == ("stopped", 1, 1)
    assert status.reason is not None
    assert "was preempted by `speech`" in status.reason.sentence
    assert harness.hub.asked == []
    assert harness.loop.state.jobs.by_uid.get(uid) is None


@pytest.mark.parametrize(("port", "asked"), [(4711, ["workspace-ada"]), (None, [])])
async def test_only_the_hubs_workspaces_come_back_through_the_hub(
    harness: SchedulerHarness, port: int | None, asked: list[str]
) -> None:
    uid = await borrowed_workspace(harness, port=port)
    await harness.resume(uid)
    assert await harness.phase(uid) == "starting"
    assert harness.hub.asked == asked
    again = [task.attempt for task in harness.engine.specs if task.workload_uid == uid]
    assert again == ([0] if asked else [0, 1])


async def test_t6_a_workspace_takes_room_from_its_own_projects_training(
    harness: SchedulerHarness,
) -> None:
    await harness.project("a", 2)
    await harness.project("b", 2)
    theirs = [await harness.submit("b", f"b{n}") for n in range(2)]
    ours = [await harness.submit("a", f"a{n}") for n in range(2)]
    await harness.runs(*theirs, *ours)
    workspace = await harness.submit("a", "workspace-ada", 1, kind="workspace")
    phases = await harness.phases(*ours)
    assert sorted(phases) == ["preempting", "running"]
    assert await harness.phases(*theirs) == ["running", "running"]
    victim = ours[phases.index("preempting")]
    await harness.ends(victim, 143)
    assert await harness.phase(workspace) == "starting"


async def test_a_queued_workspace_is_started_through_the_hub_and_released_if_nobody_comes(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "workspace-ada", 1, kind="workspace", hold_for_claim=True)
    assert await harness.phase(uid) == "starting"
    assert harness.hub.asked == ["workspace-ada"]
    assert harness.engine.specs == {}
    await harness.wait(121.0)
    status = (await harness.stored(uid)).status
    assert status.phase == "stopped"
    assert status.reason is not None
    assert status.reason.token == "NotClaimed"
    other = await harness.submit("vision", "train", 2)
    assert await harness.phase(other) == "starting"
