"""What a restarted loop makes of what it finds: tasks to adopt, to launch, to settle, to end."""

import msgspec

from unit.workloads.harness import NODE, SchedulerHarness


async def test_after_a_crash_running_tasks_are_adopted(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    running = await harness.submit("vision", "train-1")
    await harness.runs(running)
    started = await harness.submit("vision", "train-2")
    waiting = await harness.submit("vision", "train-3", 4)
    await harness.recover()
    assert await harness.phases(running, started, waiting) == ["running", "starting", "pending"]
    assert len(harness.engine.specs) == 2
    await harness.ends(running)
    assert await harness.phase(running) == "succeeded"


async def test_after_a_crash_what_was_recorded_but_not_launched_is_launched(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    harness.engine.specs.clear()
    harness.engine.alive.clear()
    await harness.recover()
    assert [task.workload_uid for task in harness.engine.specs] == [uid]
    assert {task.attempt for task in harness.engine.specs} == {0}


async def test_after_a_crash_an_end_that_nobody_saw_is_settled(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    done = await harness.submit("vision", "done")
    gone = await harness.submit("vision", "gone")
    await harness.runs(done, gone)
    harness.finish(harness.tasks_of(done)[0], 0)
    harness.engine.alive.clear()
    await harness.recover()
    assert await harness.phase(done) == "succeeded"
    status = (await harness.stored(gone)).status
    assert status.phase == "starting"
    assert (status.attempt, status.failures) == (1, 0)


async def test_after_a_crash_a_task_is_where_it_was_though_its_end_named_no_node(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "gang", 1, tasks=2)
    await harness.runs(uid)
    first, other = harness.tasks_of(uid)
    nowhere = msgspec.structs.replace(harness.engine.alive[first], node="")
    harness.engine.alive[first] = nowhere
    harness.finish(first, None, signal=9)
    await harness.settle()
    assert list(harness.engine.stopping) == [other]
    await harness.recover()
    assert {task.node for task in (await harness.stored(uid)).status.tasks} == {NODE}


async def test_after_a_crash_a_process_without_an_owner_is_ended(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    workload = await harness.stored(uid)
    await harness.ledger.record(epoch=harness.loop.epoch, removed=[workload])
    await harness.recover()
    assert [task.workload_uid for task in harness.engine.stopping] == [uid]


async def test_after_a_crash_giving_way_goes_on(harness: SchedulerHarness) -> None:
    await harness.project("a", 2)
    await harness.project("b", 2)
    ours = [await harness.submit("a", f"a{n}") for n in range(4)]
    await harness.runs(*ours)
    claim = await harness.submit("b", "b0")
    await harness.recover()
    (victim,) = [uid for uid in ours if await harness.phase(uid) == "preempting"]
    assert [task.workload_uid for task in harness.engine.stopping] == [victim]
    await harness.ends(victim, 143)
    assert await harness.phase(claim) == "starting"
