"""What fails, is lost or does not end, in virtual time: tried again, elsewhere, or given up."""

import msgspec
import pytest

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import LATE_SECONDS
from carrel_scheduler.workloads.reconcile import executor
from carrel_scheduler.workloads.state.events import DevicesSampled, Wake
from carrel_schema.sections import Retries
from unit.workloads.desk import NODE, Desk, node_facts


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


async def test_after_a_crash_another_node_is_taken_where_one_has_room(desk: Desk) -> None:
    await desk.project("vision", 4)
    other = msgspec.structs.replace(node_facts(4), name="other")
    desk.loop.enqueue(DevicesSampled(other, ()))
    await desk.settle()
    uid = await desk.submit("vision", "train-1", gpus=4, backoff_limit=3)
    nodes = []
    for _ in range(2):
        await desk.runs(uid)
        [task] = desk.tasks_of(uid)
        nodes.append(desk.engine.specs[task].node)
        await desk.wait(60.0)
        await desk.ends(uid, None, signal=11)
        await desk.wait(60.0)
    assert sorted(nodes) == sorted((NODE, "other"))
    assert (await desk.stored(uid)).status.failed_nodes == (nodes[1], nodes[0])
    assert await desk.phase(uid) == "starting", "both failed: it waits for neither"


async def crashed(desk: Desk, uid: str) -> tuple[int, ...]:
    """The GPUs of an attempt that crashes a minute after its start."""
    await desk.runs(uid)
    [task] = desk.tasks_of(uid)
    await desk.wait(60.0)
    await desk.ends(uid, None, signal=11)
    await desk.wait(60.0)
    return desk.engine.specs[task].devices


async def test_after_a_crash_other_gpus_of_the_machine_are_taken(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "train-1", gpus=2, backoff_limit=9)
    first, second = await crashed(desk, uid), await crashed(desk, uid)
    assert sorted(first + second) == [0, 1, 2, 3]
    status = (await desk.stored(uid)).status
    assert status.failed_devices == tuple(f"{NODE}/{one}" for one in (*second, *first))
    await desk.recover()
    assert await crashed(desk, uid) == first, "all failed: those that did so latest come last"
    await desk.change(uid, suspend=True)
    await desk.ends(uid, 143)
    await desk.resume(uid)
    assert (await desk.stored(uid)).status.failed_devices == ()


async def test_a_gpu_that_failed_is_taken_at_once_where_no_other_is_free(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "train-1", gpus=2, backoff_limit=9)
    await desk.runs(uid)
    others = await desk.submit("vision", "train-2", gpus=2)
    await desk.runs(others)
    assert await crashed(desk, uid) == (0, 1)
    assert await desk.phase(uid) == "starting"


@pytest.mark.parametrize("share", [False, True])
async def test_who_wants_no_such_care_gets_the_same_gpus_again(desk: Desk, *, share: bool) -> None:
    await desk.project("vision", 4)
    gpus = 0.5 if share else 2
    careless = await desk.submit(
        "vision", "careless", gpus, backoff_limit=9, avoid_failed_nodes=False
    )
    assert await crashed(desk, careless) == await crashed(desk, careless)
    await desk.change(careless, suspend=True)
    await desk.ends(careless, 143)
    careful = await desk.submit("vision", "careful", gpus, backoff_limit=9)
    assert await crashed(desk, careful) != await crashed(desk, careful)


async def test_an_error_of_the_program_blames_no_gpu(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "train-1", retries=Retries(application=3))
    await desk.runs(uid)
    [task] = desk.tasks_of(uid)
    desk.finish(task, 127)
    await desk.settle()
    assert (await desk.stored(uid)).status.failed_devices == ()


async def test_an_exit_that_comes_twice_within_seconds_is_not_tried_again(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    for _ in range(2):
        await desk.runs(uid)
        await desk.ends(uid, 3)
        await desk.wait(6.0)
    status = (await desk.stored(uid)).status
    assert (status.phase, status.failures) == ("failed", 2)
    assert status.reason is not None
    assert "twice within seconds" in status.reason.sentence


async def test_exits_that_differ_or_come_late_are_tried_again(desk: Desk) -> None:
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    for code, seconds in ((3, 0), (4, 0), (3, 11), (3, 0)):
        await desk.runs(uid)
        await desk.wait(seconds)
        await desk.ends(uid, code)
        assert await desk.phase(uid) == "pending"
        await desk.wait(60.0)


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
    desk.loop.enqueue(Wake())
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
    monkeypatch.setattr(executor, "PAUSES", Pauses(0.0, 0.0))
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1", 1)
    await desk.runs(uid)
    desk.engine.deaf = 20
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
