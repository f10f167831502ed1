"""The loop end to end in virtual time: submit, share, reclaim, suspend, report."""

import pytest

from carrel_scheduler.core.events import CheckpointSeen
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.workloads.reconcile import plan_execution
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_schema.history import Report
from carrel_schema.objects import Workload
from unit.workloads.harness import SchedulerHarness


async def test_a_training_runs_from_pending_to_succeeded(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    assert await harness.phase(uid) == "starting"
    await harness.runs(uid)
    assert await harness.phase(uid) == "running"
    await harness.ends(uid)
    assert await harness.phase(uid) == "succeeded"
    rows = await harness.ledger.transitions(workload_uid=uid)
    assert [row.to_phase for row in rows] == ["pending", "starting", "running", "succeeded"]
    assert [row.gpu_milli for row in rows] == [0, 1000, 1000, 0]


async def test_the_decision_is_in_the_ledger_before_the_engine_hears_of_it(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    seen: list[int] = []
    start = harness.engine.start

    async def watching(task: object) -> None:
        seen.append(len(await harness.ledger.decisions()))
        await start(task)  # type: ignore[arg-type]

    harness.engine.start = watching  # type: ignore[method-assign]
    await harness.submit("vision", "train-1")
    assert seen == [1]


async def test_the_task_gets_its_devices_its_token_and_no_secret_in_the_open(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit(
        "vision", "train-1", 2, checkpoint_every_seconds=30.0, large_shm=True
    )
    (task,) = harness.engine.specs.values()
    assert len(task.devices) == 2
    assert task.large_shm
    assert task.environment["CARREL_PROJECT"] == "vision"
    assert task.environment["CARREL_CHECKPOINT_EVERY"] == "30"
    assert harness.settings.tokens.uid(task.secret_environment["CARREL_TASK_TOKEN"]) == uid
    assert "CARREL_TASK_TOKEN" not in task.environment


async def test_t1_a_claim_within_quota_reclaims_only_what_is_borrowed(
    harness: SchedulerHarness,
) -> None:
    await harness.project("a", 2)
    await harness.project("b", 2)
    a2 = await harness.submit("a", "a2", 2)
    a1 = await harness.submit("a", "a1", 1)
    b1 = await harness.submit("b", "b1", 1)
    await harness.runs(a2, a1, b1)
    assert await harness.phases(a2, a1, b1) == ["running"] * 3
    assert (await harness.stored(a1)).status.borrowed
    b2 = await harness.submit("b", "b2", 1)
    assert await harness.phases(a2, a1, b1, b2) == ["running", "preempting", "running", "pending"]
    last = (await harness.stored(a1)).status.last_preemption
    assert last is not None
    assert (last.rule, last.for_project, last.for_workload) == ("reclaim", "b", "b2")
    await harness.ends(a1, 143)
    await harness.runs(b2)
    assert await harness.phases(a2, a1, b1, b2) == ["running", "pending", "running", "running"]
    waiting = (await harness.stored(a1)).status
    assert waiting.reason is not None
    assert "`b`" in waiting.reason.sentence
    await harness.change(a2, delete=True)
    await harness.ends(a2, 143)
    with pytest.raises(ObjectNotFound):
        await harness.stored(a2)
    assert await harness.phase(a1) == "starting"
    assert (await harness.stored(a1)).status.attempt == 1


async def test_the_room_being_freed_is_not_taken_by_somebody_else(
    harness: SchedulerHarness,
) -> None:
    await harness.project("a", 2)
    await harness.project("b", 2)
    borrowed = [await harness.submit("a", f"a{n}") for n in range(4)]
    await harness.runs(*borrowed)
    b1 = await harness.submit("b", "b1", 2)
    giving_way = [uid for uid in borrowed if await harness.phase(uid) == "preempting"]
    assert len(giving_way) == 2
    late = await harness.submit("a", "late")
    await harness.ends(giving_way[0], 143)
    assert await harness.phases(b1, late) == ["pending", "pending"]
    await harness.ends(giving_way[1], 143)
    assert await harness.phases(b1, late) == ["starting", "pending"]


async def test_suspend_keeps_and_resume_queues_again(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    await harness.change(uid, suspend=True)
    assert await harness.phase(uid) == "stopping"
    await harness.ends(uid, None, signal=15)
    stopped = (await harness.stored(uid)).status
    assert stopped.phase == "stopped"
    assert stopped.reason is not None
    assert stopped.reason.token == "Suspended"
    await harness.resume(uid)
    assert await harness.phase(uid) == "starting"
    assert {task.attempt for task in harness.engine.alive} == {1}


@pytest.mark.parametrize(
    ("asked_by", "sentence"),
    [("ada", "Suspended by its owner."), ("admin", "Suspended by admin."), ("", "Suspended.")],
)
async def test_who_asked_is_told_and_recorded(
    harness: SchedulerHarness, asked_by: str, sentence: str
) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", user="ada")
    await harness.runs(uid)
    await harness.change(uid, suspend=True, asked_by=asked_by)
    await harness.ends(uid, None, signal=15)
    reason = (await harness.stored(uid)).status.reason
    assert reason is not None
    assert reason.sentence == sentence
    assert reason.data == ({"asked_by": asked_by} if asked_by else {})
    rows = await harness.ledger.transitions(workload_uid=uid)
    assert rows[-1].reason == reason


async def test_suspending_a_waiting_workload_takes_it_out_of_the_queue(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    holder = await harness.submit("vision", "holder", 4)
    waiter = await harness.submit("vision", "waiter", 1)
    await harness.change(waiter, suspend=True)
    await harness.ends(holder)
    assert await harness.phase(waiter) == "stopped"


async def test_deleting_a_waiting_workload_removes_it_at_once(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    await harness.submit("vision", "holder", 4)
    uid = await harness.submit("vision", "waiter")
    await harness.change(uid, delete=True)
    with pytest.raises(ObjectNotFound):
        await harness.stored(uid)
    assert harness.engine.removed == [uid]
    rows = await harness.ledger.transitions(workload_uid=uid)
    assert rows[-1].to_phase == "stopped"


async def test_a_workload_that_is_here_before_its_project_waits_for_it(
    harness: SchedulerHarness,
) -> None:
    uid = await harness.submit("vision", "train-1")
    assert await harness.phase(uid) == "pending"
    workload = await harness.stored(uid)
    live = LiveState(harness.loop)
    assert live.never(workload) is None
    assert live.forecast(workload).token == "WaitsForProject"
    await harness.project("vision", 2)
    assert await harness.phase(uid) == "starting"


async def test_a_forecast_says_with_how_many_gpus_it_would_start(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    await harness.submit("vision", "holder", 2)
    waits = await harness.stored(await harness.submit("vision", "waiter", 4))
    told = LiveState(harness.loop).forecast(waits)
    assert told.sentence.endswith(" It would start now with 2 GPUs.")
    assert told.data["sentence_without_names"].endswith(" It would start now with 2 GPUs.")
    assert told.data["starts_with_gpus"] == 2


async def test_devices_and_queue_tell_the_colours_of_their_projects(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2, color=7)
    await harness.project("speech", 2, color=3)
    await harness.submit("vision", "train-1", 3)
    await harness.submit("speech", "train-2", 4)
    live = LiveState(harness.loop)
    (node,) = live.nodes()
    holders = [holder for device in node.devices for holder in device.holders]
    assert {(holder.project, holder.color) for holder in holders} >= {("vision", 7)}
    assert [(entry.project, entry.color) for entry in live.queue()] == [("speech", 3)]


async def test_places_count_others_pods_and_what_is_not_decided_comes_last(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 0, over_quota=False)
    new, known = [await harness.submit("vision", name) for name in ("new", "known")]
    queue = ("pod", known)
    harness.loop.cache.queue = lambda: queue
    found = LiveState(harness.loop).queue()
    assert [(entry.uid, entry.position) for entry in found] == [(known, 2), (new, 3)]


async def test_everybody_in_a_long_queue_is_told_why(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_execution, "WRITTEN_AT_ONCE", 2)
    waiting = [await harness.submit("vision", f"train-{number}") for number in range(7)]
    await harness.project("vision", 0, over_quota=False)
    assert await harness.phases(*waiting) == ["pending"] * 7
    assert all([(await harness.stored(uid)).status.reason for uid in waiting])


async def test_reports_reach_the_status_and_the_curves(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    entry = harness.loop.cache.get(uid)
    assert entry is not None
    report = Report(
        at=harness.now, step=5, metrics={"loss": 0.5}, done=5, total=10, checkpoint_step=4
    )
    harness.loop.reports.take(entry, report, harness.loop.state, harness.now)
    await harness.wait(1.5)
    status = (await harness.stored(uid)).status
    assert status.metrics == {"loss": 0.5}
    assert status.progress is not None
    assert (status.progress.done, status.progress.total) == (5, 10)
    assert status.checkpoint is not None
    assert status.checkpoint.step == 4
    curves = await harness.ledger.metrics(uid)
    assert [point.value for point in curves["loss"]] == [0.5]


async def test_curves_are_complete_when_the_end_is_told(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    entry = harness.loop.cache.get(uid)
    assert entry is not None
    report = Report(at=harness.now, step=99, metrics={"loss": 0.25})
    harness.loop.reports.take(entry, report, harness.loop.state, harness.now)
    await harness.ends(uid)
    assert (await harness.stored(uid)).status.phase == "succeeded"
    curves = await harness.ledger.metrics(uid)
    assert [(point.step, point.value) for point in curves["loss"]] == [(99, 0.25)]
    await harness.wait(1.5)
    assert len((await harness.ledger.metrics(uid))["loss"]) == 1


async def test_what_is_shown_as_borrowed_gives_way_and_of_it_what_loses_least(
    harness: SchedulerHarness,
) -> None:
    await harness.project("a", 2)
    await harness.project("b", 2)
    ours = [await harness.submit("a", f"a{n}") for n in range(4)]
    await harness.runs(*ours)
    assert [(await harness.stored(uid)).status.borrowed for uid in ours] == [
        False,
        False,
        True,
        True,
    ]
    await harness.wait(100.0)
    harness.loop.state.apply(CheckpointSeen(ours[2], harness.now - 1))
    harness.loop.state.apply(CheckpointSeen(ours[0], harness.now))
    claim = await harness.submit("b", "b0")
    assert await harness.phase(claim) == "pending"
    assert await harness.phases(*ours) == ["running", "running", "preempting", "running"]


async def test_a_specification_changed_meanwhile_is_not_lost(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    workload = await harness.ledger.get_by_uid(Workload, uid)
    workload.spec.suspend = True
    await harness.ledger.update(workload)
    await harness.runs(uid)
    assert await harness.phase(uid) == "stopping"
