"""What a restarted loop makes of what it finds: tasks to adopt, to launch, to settle, to end."""

import msgspec

from unit.workloads.desk import NODE, Desk


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
