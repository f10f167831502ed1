"""The loop end to end in virtual time: submit, share, reclaim, suspend, fail, crash."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.events import CheckpointSeen
from carrel_scheduler.ledger.objects import InteractiveLimits, Workload
from carrel_scheduler.ledger.store import NotFound
from carrel_scheduler.workloads import actor, explaining
from carrel_scheduler.workloads.contract import Report
from carrel_scheduler.workloads.lifecycle import LATE_SECONDS
from carrel_scheduler.workloads.live import LiveView
from carrel_scheduler.workloads.messages import Wake
from unit.workloads.desk import NODE, Desk


async def test_a_training_runs_from_pending_to_succeeded(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    assert await desk.phase(uid) == "starting"
    await desk.runs(uid)
    assert await desk.phase(uid) == "running"
    await desk.ends(uid)
    assert await desk.phase(uid) == "succeeded"
    rows = await desk.ledger.transitions(workload_uid=uid)
    assert [row.to_phase for row in rows] == ["pending", "starting", "running", "succeeded"]
    assert [row.gpu_milli for row in rows] == [0, 1000, 1000, 0]


async def test_the_decision_is_in_the_ledger_before_the_engine_hears_of_it(desk: Desk) -> None:
    await desk.project("vision", 2)
    seen: list[int] = []
    start = desk.engine.start

    async def watching(task: object) -> None:
        seen.append(len(await desk.ledger.decisions()))
        await start(task)  # type: ignore[arg-type]

    desk.engine.start = watching  # type: ignore[method-assign]
    await desk.submit("vision", "train-1")
    assert seen == [1]


async def test_the_task_gets_its_devices_its_token_and_no_secret_in_the_open(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1", 2, checkpoint_every_seconds=30.0, large_shm=True)
    (task,) = desk.engine.specs.values()
    assert len(task.devices) == 2
    assert task.large_shm
    assert task.environment["CARREL_PROJECT"] == "vision"
    assert task.environment["CARREL_CHECKPOINT_EVERY"] == "30"
    assert desk.settings.tokens.uid(task.secret_environment["CARREL_TASK_TOKEN"]) == uid
    assert "CARREL_TASK_TOKEN" not in task.environment


async def test_t1_a_claim_within_quota_reclaims_only_what_is_borrowed(desk: Desk) -> None:
    await desk.project("a", 2)
    await desk.project("b", 2)
    a2 = await desk.submit("a", "a2", 2)
    a1 = await desk.submit("a", "a1", 1)
    b1 = await desk.submit("b", "b1", 1)
    await desk.runs(a2, a1, b1)
    assert await desk.phases(a2, a1, b1) == ["running"] * 3
    assert (await desk.stored(a1)).status.borrowed
    b2 = await desk.submit("b", "b2", 1)
    assert await desk.phases(a2, a1, b1, b2) == ["running", "preempting", "running", "pending"]
    last = (await desk.stored(a1)).status.last_preemption
    assert last is not None
    assert (last.rule, last.for_project, last.for_workload) == ("reclaim", "b", "b2")
    await desk.ends(a1, 143)
    await desk.runs(b2)
    assert await desk.phases(a2, a1, b1, b2) == ["running", "pending", "running", "running"]
    waiting = (await desk.stored(a1)).status
    assert waiting.reason is not None
    assert "`b`" in waiting.reason.sentence
    await desk.change(a2, delete=True)
    await desk.ends(a2, 143)
    with pytest.raises(NotFound):
        await desk.stored(a2)
    assert await desk.phase(a1) == "starting"
    assert (await desk.stored(a1)).status.attempt == 1


async def test_the_room_being_freed_is_not_taken_by_somebody_else(desk: Desk) -> None:
    await desk.project("a", 2)
    await desk.project("b", 2)
    borrowed = [await desk.submit("a", f"a{n}") for n in range(4)]
    await desk.runs(*borrowed)
    b1 = await desk.submit("b", "b1", 2)
    giving_way = [uid for uid in borrowed if await desk.phase(uid) == "preempting"]
    assert len(giving_way) == 2
    late = await desk.submit("a", "late")
    await desk.ends(giving_way[0], 143)
    assert await desk.phases(b1, late) == ["pending", "pending"]
    await desk.ends(giving_way[1], 143)
    assert await desk.phases(b1, late) == ["starting", "pending"]


async def test_nobody_waits_for_ever_for_a_task_that_does_not_end(desk: Desk) -> None:
    await desk.project("a", 2)
    await desk.project("b", 2)
    borrowed = [await desk.submit("a", f"a{n}", grace_seconds=40) for n in range(4)]
    await desk.runs(*borrowed)
    claim = await desk.submit("b", "b1")

    async def giving_way() -> list[str]:
        return [uid for uid in borrowed if await desk.phase(uid) == "preempting"]

    (stuck,) = await giving_way()
    await desk.wait(40 + LATE_SECONDS - 1)
    assert await giving_way() == [stuck]
    await desk.wait(2)
    (other,) = set(await giving_way()) - {stuck}
    await desk.ends(other, 143)
    assert await desk.phases(claim, stuck) == ["starting", "preempting"]
    await desk.ends(stuck, 137)
    assert "starting" in await desk.phases(stuck, other)


async def test_what_ends_within_its_grace_is_not_given_up(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.project("a", 1)
    training = await desk.submit("a", "a1")
    await desk.runs(training)
    await desk.change(training, suspend=True)
    await desk.ends(training, 143)
    await desk.resume(training)
    await desk.runs(training)
    await desk.wait(3600)
    assert await desk.phase(training) == "running"
    assert "has not ended" not in caplog.text


async def test_suspend_keeps_and_resume_queues_again(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    await desk.change(uid, suspend=True)
    assert await desk.phase(uid) == "stopping"
    await desk.ends(uid, None, signal=15)
    stopped = (await desk.stored(uid)).status
    assert stopped.phase == "stopped"
    assert stopped.reason is not None
    assert stopped.reason.token == "Suspended"
    await desk.resume(uid)
    assert await desk.phase(uid) == "starting"
    assert {task.attempt for task in desk.engine.alive} == {1}


async def test_suspending_a_waiting_workload_takes_it_out_of_the_queue(desk: Desk) -> None:
    await desk.project("vision", 4)
    holder = await desk.submit("vision", "holder", 4)
    waiter = await desk.submit("vision", "waiter", 1)
    await desk.change(waiter, suspend=True)
    await desk.ends(holder)
    assert await desk.phase(waiter) == "stopped"


async def test_a_failing_training_is_tried_again_and_then_given_up(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1", backoff_limit=1)
    await desk.runs(uid)
    await desk.ends(uid, 1)
    waiting = (await desk.stored(uid)).status
    assert (waiting.phase, waiting.failures) == ("pending", 1)
    assert waiting.reason is not None
    assert waiting.reason.token == "BackOff"
    await desk.wait(4.0)
    assert await desk.phase(uid) == "pending"
    await desk.wait(2.0)
    assert await desk.phase(uid) == "starting"
    await desk.runs(uid)
    await desk.ends(uid, 1)
    assert await desk.phase(uid) == "failed"


async def test_an_engine_that_cannot_start_a_task_counts_as_a_failure(desk: Desk) -> None:
    await desk.project("vision", 2)
    desk.engine.refuse = "no such user"
    uid = await desk.submit("vision", "train-1", backoff_limit=0)
    status = (await desk.stored(uid)).status
    assert status.phase == "failed"
    assert status.reason is not None
    assert "no such user" in status.reason.sentence


@pytest.mark.parametrize("tasks", [1, 2])
async def test_what_cannot_run_on_its_node_gets_another_place(desk: Desk, tasks: int) -> None:
    await desk.project("vision", 2)
    desk.engine.refuse_here = "its volume is on node n2"
    uid = await desk.submit("vision", "train-1", 1, tasks=tasks, backoff_limit=0)
    status = (await desk.stored(uid)).status
    assert (status.phase, status.failures) == ("pending", 0)
    assert status.reason is not None
    assert status.reason.token == "NotBegun"
    assert "its volume is on node n2" in status.reason.sentence
    desk.engine.refuse_here = ""
    await desk.wait(2.0)
    assert await desk.phase(uid) == "starting"


async def test_a_pause_is_as_long_as_it_was_though_the_clock_is_set_back(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1", backoff_limit=1)
    await desk.runs(uid)
    await desk.ends(uid, 1)
    assert await desk.phase(uid) == "pending"
    desk.now -= 3600.0
    desk.loop.tell(Wake())
    await desk.settle()
    await desk.wait(5.0)
    assert await desk.phase(uid) == "starting"


async def test_after_a_restart_no_pause_is_longer_than_failures_ask_for(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1", backoff_limit=1)
    await desk.runs(uid)
    await desk.ends(uid, 1)
    desk.now -= 3600.0
    await desk.recover()
    assert await desk.phase(uid) == "pending"
    await desk.wait(5.0)
    assert await desk.phase(uid) == "starting"


async def test_a_member_that_is_gone_without_a_trace_is_not_waited_for(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "gang", 1, tasks=2)
    await desk.runs(uid)
    first, other = desk.tasks_of(uid)
    del desk.engine.alive[other]
    desk.finish(first, None, signal=9)
    await desk.settle()
    status = (await desk.stored(uid)).status
    assert (status.phase, status.failures) == ("pending", 1)


async def test_an_engine_that_does_not_pass_a_stop_on_is_asked_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor, "STOP_AGAIN_SECONDS", (0.0, 0.0, 0.0))
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1", 1)
    await desk.runs(uid)
    desk.engine.deaf = 3
    await desk.change(uid, suspend=True)
    assert list(desk.engine.stopping) == desk.tasks_of(uid)


async def test_a_gang_that_loses_a_member_starts_again_together(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "gang", 1, tasks=3)
    await desk.runs(uid)
    first, *others = desk.tasks_of(uid)
    desk.finish(first, None, signal=9)
    await desk.settle()
    assert set(desk.engine.stopping) == set(others)
    for task in others:
        desk.finish(task, 143)
    await desk.settle()
    await desk.wait(6.0)
    assert {task.attempt for task in desk.tasks_of(uid)} == {1}
    assert len(desk.tasks_of(uid)) == 3


async def test_deleting_a_waiting_workload_removes_it_at_once(desk: Desk) -> None:
    await desk.project("vision", 4)
    await desk.submit("vision", "holder", 4)
    uid = await desk.submit("vision", "waiter")
    await desk.change(uid, delete=True)
    with pytest.raises(NotFound):
        await desk.stored(uid)
    assert desk.engine.removed == [uid]
    rows = await desk.ledger.transitions(workload_uid=uid)
    assert rows[-1].to_phase == "stopped"


async def test_a_workload_that_is_here_before_its_project_waits_for_it(desk: Desk) -> None:
    uid = await desk.submit("vision", "train-1")
    assert await desk.phase(uid) == "pending"
    workload = await desk.stored(uid)
    live = LiveView(desk.loop)
    assert live.never(workload) is None
    assert live.forecast(workload).token == "WaitsForProject"
    await desk.project("vision", 2)
    assert await desk.phase(uid) == "starting"


async def test_devices_and_queue_tell_the_colours_of_their_projects(desk: Desk) -> None:
    await desk.project("vision", 2, color=7)
    await desk.project("speech", 2, color=3)
    await desk.submit("vision", "train-1", 3)
    await desk.submit("speech", "train-2", 4)
    live = LiveView(desk.loop)
    (node,) = live.nodes()
    holders = [holder for device in node.devices for holder in device.holders]
    assert {(holder.project, holder.color) for holder in holders} >= {("vision", 7)}
    assert [(entry.project, entry.color) for entry in live.queue()] == [("speech", 3)]


async def test_everybody_in_a_long_queue_is_told_why(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explaining, "WRITTEN_AT_ONCE", 2)
    waiting = [await desk.submit("vision", f"train-{number}") for number in range(7)]
    await desk.project("vision", 0, over_quota=False)
    assert await desk.phases(*waiting) == ["pending"] * 7
    assert all([(await desk.stored(uid)).status.reason for uid in waiting])


async def test_reports_reach_the_status_and_the_curves(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    entry = desk.loop.book.get(uid)
    assert entry is not None
    report = Report(at=desk.now, step=5, metrics={"loss": 0.5}, done=5, total=10, checkpoint_step=4)
    desk.loop.reports.take(entry, report, desk.loop.state, desk.now)
    await desk.wait(1.5)
    status = (await desk.stored(uid)).status
    assert status.metrics == {"loss": 0.5}
    assert status.progress is not None
    assert (status.progress.done, status.progress.total) == (5, 10)
    assert status.checkpoint is not None
    assert status.checkpoint.step == 4
    curves = await desk.ledger.metrics(uid)
    assert [point.value for point in curves["loss"]] == [0.5]


async def test_curves_are_complete_when_the_end_is_told(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    entry = desk.loop.book.get(uid)
    assert entry is not None
    report = Report(at=desk.now, step=99, metrics={"loss": 0.25})
    desk.loop.reports.take(entry, report, desk.loop.state, desk.now)
    await desk.ends(uid)
    assert (await desk.stored(uid)).status.phase == "succeeded"
    curves = await desk.ledger.metrics(uid)
    assert [(point.step, point.value) for point in curves["loss"]] == [(99, 0.25)]
    await desk.wait(1.5)
    assert len((await desk.ledger.metrics(uid))["loss"]) == 1


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
    project.spec.interactive = InteractiveLimits(time_limit_seconds=60.0)
    project = await desk.ledger.update(project)
    await desk.recover()
    await desk.wait(120.0)
    assert await desk.phase(uid) == "running"
    project.spec.interactive = InteractiveLimits(time_limit_seconds=60.0, apply_to_running=True)
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
    assert "gave way to `speech`" in status.reason.sentence
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


async def test_what_is_shown_as_borrowed_gives_way_and_of_it_what_loses_least(desk: Desk) -> None:
    await desk.project("a", 2)
    await desk.project("b", 2)
    ours = [await desk.submit("a", f"a{n}") for n in range(4)]
    await desk.runs(*ours)
    assert [(await desk.stored(uid)).status.borrowed for uid in ours] == [False, False, True, True]
    await desk.wait(100.0)
    desk.loop.state.apply(CheckpointSeen(ours[2], desk.now - 1))
    desk.loop.state.apply(CheckpointSeen(ours[0], desk.now))
    claim = await desk.submit("b", "b0")
    assert await desk.phase(claim) == "pending"
    assert await desk.phases(*ours) == ["running", "running", "preempting", "running"]


async def test_after_a_crash_running_tasks_are_adopted(desk: Desk) -> None:
    await desk.project("vision", 2)
    running = await desk.submit("vision", "train-1")
    await desk.runs(running)
    started = await desk.submit("vision", "train-2")
    waiting = await desk.submit("vision", "train-3", 4)
    await desk.recover()
    assert await desk.phases(running, started, waiting) == ["running", "starting", "pending"]
    assert len(desk.engine.specs) == 2
    await desk.ends(running)
    assert await desk.phase(running) == "succeeded"


async def test_after_a_crash_what_was_recorded_but_not_launched_is_launched(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    desk.engine.specs.clear()
    desk.engine.alive.clear()
    await desk.recover()
    assert [task.workload_uid for task in desk.engine.specs] == [uid]
    assert {task.attempt for task in desk.engine.specs} == {0}


async def test_after_a_crash_an_end_that_nobody_saw_is_settled(desk: Desk) -> None:
    await desk.project("vision", 2)
    done = await desk.submit("vision", "done")
    gone = await desk.submit("vision", "gone")
    await desk.runs(done, gone)
    desk.finish(desk.tasks_of(done)[0], 0)
    desk.engine.alive.clear()
    await desk.recover()
    assert await desk.phase(done) == "succeeded"
    status = (await desk.stored(gone)).status
    assert status.phase == "starting"
    assert (status.attempt, status.failures) == (1, 0)


async def test_after_a_crash_a_task_is_where_it_was_though_its_end_named_no_node(
    desk: Desk,
) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "gang", 1, tasks=2)
    await desk.runs(uid)
    first, other = desk.tasks_of(uid)
    nowhere = msgspec.structs.replace(desk.engine.alive[first], node="")
    desk.engine.alive[first] = nowhere
    desk.finish(first, None, signal=9)
    await desk.settle()
    assert list(desk.engine.stopping) == [other]
    await desk.recover()
    assert {task.node for task in (await desk.stored(uid)).status.tasks} == {NODE}


async def test_after_a_crash_a_process_without_an_owner_is_ended(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    workload = await desk.stored(uid)
    await desk.ledger.record(epoch=desk.loop.epoch, removed=[workload])
    await desk.recover()
    assert [task.workload_uid for task in desk.engine.stopping] == [uid]


async def test_after_a_crash_giving_way_goes_on(desk: Desk) -> None:
    await desk.project("a", 2)
    await desk.project("b", 2)
    ours = [await desk.submit("a", f"a{n}") for n in range(4)]
    await desk.runs(*ours)
    claim = await desk.submit("b", "b0")
    await desk.recover()
    (victim,) = [uid for uid in ours if await desk.phase(uid) == "preempting"]
    assert [task.workload_uid for task in desk.engine.stopping] == [victim]
    await desk.ends(victim, 143)
    assert await desk.phase(claim) == "starting"


async def test_a_specification_changed_meanwhile_is_not_lost(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    workload = await desk.ledger.get_by_uid(Workload, uid)
    workload.spec.suspend = True
    await desk.ledger.update(workload)
    await desk.runs(uid)
    assert await desk.phase(uid) == "stopping"
