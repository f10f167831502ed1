"""What fails, is lost or does not end, in virtual time: tried again, elsewhere, or given up."""

import msgspec
import pytest

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import LATE_SECONDS
from carrel_scheduler.workloads.reconcile import executor
from carrel_scheduler.workloads.state.events import DevicesSampled, Wake
from carrel_schema.sections import Retries
from unit.workloads.harness import NODE, SchedulerHarness, node_facts


async def test_nobody_waits_for_ever_for_a_task_that_does_not_end(
    harness: SchedulerHarness,
) -> None:
    await harness.project("a", 2)
    await harness.project("b", 2)
    borrowed = [await harness.submit("a", f"a{n}", grace_seconds=40) for n in range(4)]
    await harness.runs(*borrowed)
    claim = await harness.submit("b", "b1")

    async def giving_way() -> list[str]:
        return [uid for uid in borrowed if await harness.phase(uid) == "preempting"]

    (stuck,) = await giving_way()
    await harness.wait(40 + LATE_SECONDS - 1)
    assert await giving_way() == [stuck]
    await harness.wait(2)
    (other,) = set(await giving_way()) - {stuck}
    await harness.ends(other, 143)
    assert await harness.phases(claim, stuck) == ["starting", "preempting"]
    await harness.ends(stuck, 137)
    assert "starting" in await harness.phases(stuck, other)


async def test_what_ends_within_its_grace_is_not_given_up(
    harness: SchedulerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await harness.project("a", 1)
    training = await harness.submit("a", "a1")
    await harness.runs(training)
    await harness.change(training, suspend=True)
    await harness.ends(training, 143)
    await harness.resume(training)
    await harness.runs(training)
    await harness.wait(3600)
    assert await harness.phase(training) == "running"
    assert "has not ended" not in caplog.text


async def test_a_failing_training_is_tried_again_and_then_given_up(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", backoff_limit=1)
    await harness.runs(uid)
    await harness.ends(uid, 1)
    waiting = (await harness.stored(uid)).status
    assert (waiting.phase, waiting.failures) == ("pending", 1)
    assert waiting.reason is not None
    assert waiting.reason.token == "BackOff"
    await harness.wait(4.0)
    assert await harness.phase(uid) == "pending"
    await harness.wait(2.0)
    assert await harness.phase(uid) == "starting"
    await harness.runs(uid)
    await harness.ends(uid, 1)
    assert await harness.phase(uid) == "failed"


async def test_after_a_crash_another_node_is_taken_where_one_has_room(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    other = msgspec.structs.replace(node_facts(4), name="other")
    harness.loop.enqueue(DevicesSampled(other, ()))
    await harness.settle()
    uid = await harness.submit("vision", "train-1", gpus=4, backoff_limit=3)
    nodes = []
    for _ in range(2):
        await harness.runs(uid)
        [task] = harness.tasks_of(uid)
        nodes.append(harness.engine.specs[task].node)
        await harness.wait(60.0)
        await harness.ends(uid, None, signal=11)
        await harness.wait(60.0)
    assert sorted(nodes) == sorted((NODE, "other"))
    assert (await harness.stored(uid)).status.failed_nodes == (nodes[1], nodes[0])
    assert await harness.phase(uid) == "starting", "both failed: it waits for neither"


async def crashed(harness: SchedulerHarness, uid: str) -> tuple[int, ...]:
    """The GPUs of an attempt that crashes a minute after its start."""
    await harness.runs(uid)
    [task] = harness.tasks_of(uid)
    await harness.wait(60.0)
    await harness.ends(uid, None, signal=11)
    await harness.wait(60.0)
    return harness.engine.specs[task].devices


async def test_after_a_crash_other_gpus_of_the_machine_are_taken(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "train-1", gpus=2, backoff_limit=9)
    first, second = await crashed(harness, uid), await crashed(harness, uid)
    assert sorted(first + second) == [0, 1, 2, 3]
    status = (await harness.stored(uid)).status
    assert status.failed_devices == tuple(f"{NODE}/{one}" for one in (*second, *first))
    await harness.recover()
    assert await crashed(harness, uid) == first, "all failed: those that did so latest come last"
    await harness.change(uid, suspend=True)
    await harness.ends(uid, 143)
    await harness.resume(uid)
    assert (await harness.stored(uid)).status.failed_devices == ()


async def test_a_gpu_that_failed_is_taken_at_once_where_no_other_is_free(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "train-1", gpus=2, backoff_limit=9)
    await harness.runs(uid)
    others = await harness.submit("vision", "train-2", gpus=2)
    await harness.runs(others)
    assert await crashed(harness, uid) == (0, 1)
    assert await harness.phase(uid) == "starting"


@pytest.mark.parametrize("share", [False, True])
async def test_who_wants_no_such_care_gets_the_same_gpus_again(
    harness: SchedulerHarness, *, share: bool
) -> None:
    await harness.project("vision", 4)
    gpus = 0.5 if share else 2
    careless = await harness.submit(
        "vision", "careless", gpus, backoff_limit=9, avoid_failed_nodes=False
    )
    assert await crashed(harness, careless) == await crashed(harness, careless)
    await harness.change(careless, suspend=True)
    await harness.ends(careless, 143)
    careful = await harness.submit("vision", "careful", gpus, backoff_limit=9)
    assert await crashed(harness, careful) != await crashed(harness, careful)


async def test_an_error_of_the_program_blames_no_gpu(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "train-1", retries=Retries(application=3))
    await harness.runs(uid)
    [task] = harness.tasks_of(uid)
    harness.finish(task, 127)
    await harness.settle()
    assert (await harness.stored(uid)).status.failed_devices == ()


async def test_an_exit_that_comes_twice_within_seconds_is_not_tried_again(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    for _ in range(2):
        await harness.runs(uid)
        await harness.ends(uid, 3)
        await harness.wait(6.0)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.failures) == ("failed", 2)
    assert status.reason is not None
    assert "twice within seconds" in status.reason.sentence


async def test_exits_that_differ_or_come_late_are_tried_again(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    for code, seconds in ((3, 0), (4, 0), (3, 11), (3, 0)):
        await harness.runs(uid)
        await harness.wait(seconds)
        await harness.ends(uid, code)
        assert await harness.phase(uid) == "pending"
        await harness.wait(60.0)


async def test_an_engine_that_cannot_start_a_task_counts_as_a_failure(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    harness.engine.refuse = "no such user"
    uid = await harness.submit("vision", "train-1", backoff_limit=0)
    status = (await harness.stored(uid)).status
    assert status.phase == "failed"
    assert status.reason is not None
    assert "no such user" in status.reason.sentence


@pytest.mark.parametrize("tasks", [1, 2])
async def test_what_cannot_run_on_its_node_gets_another_place(
    harness: SchedulerHarness, tasks: int
) -> None:
    await harness.project("vision", 2)
    harness.engine.refuse_here = "its volume is on node n2"
    uid = await harness.submit("vision", "train-1", 1, tasks=tasks, backoff_limit=0)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.failures) == ("pending", 0)
    assert status.reason is not None
    assert status.reason.token == "NotBegun"
    assert "its volume is on node n2" in status.reason.sentence
    harness.engine.refuse_here = ""
    await harness.wait(2.0)
    assert await harness.phase(uid) == "starting"


async def test_a_pause_is_as_long_as_it_was_though_the_clock_is_set_back(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", backoff_limit=1)
    await harness.runs(uid)
    await harness.ends(uid, 1)
    assert await harness.phase(uid) == "pending"
    harness.now -= 3600.0
    harness.loop.enqueue(Wake())
    await harness.settle()
    await harness.wait(5.0)
    assert await harness.phase(uid) == "starting"


async def test_after_a_restart_no_pause_is_longer_than_failures_ask_for(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", backoff_limit=1)
    await harness.runs(uid)
    await harness.ends(uid, 1)
    harness.now -= 3600.0
    await harness.recover()
    assert await harness.phase(uid) == "pending"
    await harness.wait(5.0)
    assert await harness.phase(uid) == "starting"


async def test_a_member_that_is_gone_without_a_trace_is_not_waited_for(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "gang", 1, tasks=2)
    await harness.runs(uid)
    first, other = harness.tasks_of(uid)
    del harness.engine.alive[other]
    harness.finish(first, None, signal=9)
    await harness.settle()
    status = (await harness.stored(uid)).status
    assert (status.phase, status.failures) == ("pending", 1)


async def test_an_engine_that_does_not_pass_a_stop_on_is_asked_again(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "PAUSES", Pauses(0.0, 0.0))
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", 1)
    await harness.runs(uid)
    harness.engine.deaf = 20
    await harness.change(uid, suspend=True)
    assert list(harness.engine.stopping) == harness.tasks_of(uid)


async def test_a_gang_that_loses_a_member_starts_again_together(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "gang", 1, tasks=3)
    await harness.runs(uid)
    first, *others = harness.tasks_of(uid)
    harness.finish(first, None, signal=9)
    await harness.settle()
    assert set(harness.engine.stopping) == set(others)
    for task in others:
        harness.finish(task, 143)
    await harness.settle()
    await harness.wait(6.0)
    assert {task.attempt for task in harness.tasks_of(uid)} == {1}
    assert len(harness.tasks_of(uid)) == 3
