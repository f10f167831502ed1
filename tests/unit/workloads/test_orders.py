"""No order is dropped because the engine fails: it is repeated, shown, and holds up no other."""

import asyncio

import pytest

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import EngineError, TaskId, TaskSpec
from carrel_scheduler.workloads.reconcile import executor
from unit.workloads.harness import SchedulerHarness


async def test_a_stop_that_is_not_passed_on_is_shown_and_holds_up_no_other(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "PAUSES", Pauses(0.0, 0.0))
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "gang", 1, tasks=2)
    await harness.runs(uid)
    first, other = harness.tasks_of(uid)
    stop = harness.engine.stop

    async def half_deaf(task: TaskId, grace_seconds: float) -> None:
        if task == first and not ended:
            raise OSError(28, "No space left on device")
        await stop(task, grace_seconds)

    ended: list[TaskId] = []
    monkeypatch.setattr(harness.engine, "stop", half_deaf)
    await harness.change(uid, settle=False, suspend=True)
    async with asyncio.timeout(60):
        while not (shown := (await harness.stored(uid)).status.tasks[0].message):
            await harness.loop.reconcile()
            await asyncio.sleep(0)
    status = (await harness.stored(uid)).status
    assert "No space left" in shown
    assert status.reason is not None
    assert "No space left" in status.reason.help
    assert list(harness.engine.stopping) == [other]
    ended.append(first)
    await harness.settle()
    assert set(harness.engine.stopping) == {first, other}
    status = (await harness.stored(uid)).status
    assert status.tasks[0].message == ""
    assert status.reason is not None
    assert "No space left" not in status.reason.help


async def test_a_start_that_fails_in_an_unforeseen_way_is_refused_if_nothing_runs(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_task: TaskSpec) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(harness.engine, "start", broken)
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", 1)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.failures) == ("pending", 1)
    assert status.reason is not None
    assert "can't start new thread" in status.reason.sentence


async def test_a_start_that_fails_after_the_task_began_keeps_its_gpus_until_it_ends(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "PAUSES", Pauses(0.0, 0.0))
    start = harness.engine.start

    async def broken(task: TaskSpec) -> None:
        await start(task)
        raise MemoryError

    monkeypatch.setattr(harness.engine, "start", broken)
    harness.engine.deaf = 3
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "train-1", 4)
    (task,) = harness.tasks_of(uid)
    assert harness.engine.stopping == {task: 0.0}
    monkeypatch.setattr(harness.engine, "start", start)
    other = await harness.submit("vision", "train-2", 4)
    assert await harness.phase(uid) == "starting"
    assert await harness.phase(other) == "pending"
    harness.finish(task, 143)
    await harness.settle()
    assert await harness.phase(other) == "starting"


async def test_what_cannot_be_removed_is_removed_later(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "PAUSES", Pauses(0.0, 0.0))
    refusals = [EngineError("not now"), OSError(28, "No space left on device")]
    remove = harness.engine.remove_workload

    async def not_yet(uid: str) -> None:
        if refusals:
            raise refusals.pop()
        await remove(uid)

    monkeypatch.setattr(harness.engine, "remove_workload", not_yet)
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", 1)
    await harness.runs(uid)
    await harness.ends(uid, 0)
    await harness.change(uid, delete=True)
    assert harness.engine.removed == [uid]


async def test_a_stop_does_not_wait_for_the_devices_that_a_start_waits_for(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, interrupted = asyncio.Event(), asyncio.Event()
    started: list[TaskId] = []

    async def waits(task: TaskSpec) -> None:
        started.append(task.id)
        begun.set()
        await interrupted.wait()
        raise EngineError("its pod was ended before its devices were prepared")

    def interrupt(task: TaskId) -> None:
        assert task in started
        interrupted.set()

    monkeypatch.setattr(harness.engine, "start", waits)
    monkeypatch.setattr(harness.engine, "interrupt_start", interrupt)
    await harness.project("vision", 2)
    async with asyncio.timeout(60):
        submitting = asyncio.create_task(harness.submit("vision", "train-1", 1))
        await begun.wait()
        await harness.change(started[0].workload_uid, settle=False, suspend=True)
        await harness.loop.reconcile()
        uid = await submitting
        await harness.settle()
    assert await harness.phase(uid) == "stopped"
    assert (await harness.stored(uid)).status.failures == 0
