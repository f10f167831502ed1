"""A project's limits of trainings in virtual time: idle GPUs, time, and which rule holds."""

import msgspec
import pytest

from carrel_scheduler.node.contract import DeviceUse
from carrel_scheduler.workloads.contract import NotAccepted
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DevicesSampled
from carrel_schema.objects import InteractiveLimits, TrainingLimits
from unit.workloads.desk import Desk, node_facts

IDLE = TrainingLimits(idle_gpu_seconds=120.0)


async def devices_of(desk: Desk, uid: str) -> tuple[int, ...]:
    return tuple(index for task in (await desk.stored(uid)).status.tasks for index in task.devices)


async def stopped_with(desk: Desk, uid: str) -> tuple[str, str]:
    """Its processes end as asked; the token and the sentence it is at rest with."""
    assert await desk.phase(uid) == "stopping"
    await desk.ends(uid, 143)
    status = (await desk.stored(uid)).status
    assert status.phase == "stopped"
    assert status.limits is None
    assert status.reason is not None
    return status.reason.token, status.reason.sentence


async def test_a_training_with_idle_gpus_is_stopped_and_any_gpu_work_resets(desk: Desk) -> None:
    await desk.project("vision", 2, training=IDLE)
    uid = await desk.submit("vision", "train-1", 2)
    await desk.runs(uid)
    await desk.gpus_work()
    await desk.wait(119.0)
    await desk.gpus_work((await devices_of(desk, uid))[-1])
    await desk.wait(1.0)
    await desk.gpus_work()
    await desk.wait(118.0)
    assert await desk.phase(uid) == "running"
    await desk.wait(1.0)
    token, sentence = await stopped_with(desk, uid)
    assert token == "Idle"
    assert sentence == (
        "Stopped after 2 min without work on its GPUs; trainings of `vision` "
        "may leave their GPUs idle for 2 min."
    )


async def test_an_idle_training_that_was_stopped_can_be_resumed(desk: Desk) -> None:
    await desk.project("vision", 2, training=IDLE)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    await desk.gpus_work()
    await desk.wait(120.0)
    await stopped_with(desk, uid)
    await desk.wait(500.0)
    await desk.resume(uid)
    await desk.runs(uid)
    await desk.gpus_work()
    await desk.wait(119.0)
    assert await desk.phase(uid) == "running"
    await desk.wait(1.0)
    assert await desk.phase(uid) == "stopping"


async def test_work_on_anothers_gpu_is_none_of_its_own(desk: Desk) -> None:
    await desk.project("vision", 4, training=IDLE)
    idle = await desk.submit("vision", "idle")
    busy = await desk.submit("vision", "busy")
    await desk.runs(idle, busy)
    await desk.gpus_work(*await devices_of(desk, busy))
    facts = msgspec.structs.replace(node_facts(4), name="other")
    use = tuple(DeviceUse(index=index, utilization=1.0, memory_used_mib=0) for index in range(4))
    desk.loop.enqueue(DevicesSampled(facts, use))
    await desk.wait(120.0)
    assert await desk.phases(idle, busy) == ["stopping", "running"]


async def test_the_stop_is_announced_while_its_gpus_are_idle_and_not_while_they_work(
    desk: Desk,
) -> None:
    await desk.project("vision", 2, training=IDLE)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    await desk.gpus_work()
    began = desk.now
    await desk.wait(60.0)
    limits = (await desk.stored(uid)).status.limits
    assert limits is not None
    assert (limits.stops_because, limits.stops_at) == ("Idle", began + 120.0)
    await desk.gpus_work(*await devices_of(desk, uid))
    assert (await desk.stored(uid)).status.limits is None
    await desk.wait(1000.0)
    status = (await desk.stored(uid)).status
    assert (status.phase, status.limits) == ("running", None)


async def test_a_steady_worker_is_looked_at_once_per_idle_time(desk: Desk) -> None:
    await desk.project("vision", 2, training=IDLE)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    for _ in range(60):
        await desk.gpus_work(*await devices_of(desk, uid))
        await desk.wait(1.0)
        await desk.gpus_work()
        await desk.wait(9.0)
    assert await desk.phase(uid) == "running"
    assert len(desk.loop.timers) <= 2


async def test_a_training_without_gpus_is_never_idle(desk: Desk) -> None:
    await desk.project("vision", 2, training=IDLE)
    uid = await desk.submit("vision", "count", 0)
    await desk.runs(uid)
    await desk.wait(100_000.0)
    status = (await desk.stored(uid)).status
    assert (status.phase, status.limits) == ("running", None)


async def test_the_time_limit_counts_from_the_start_of_the_run(desk: Desk) -> None:
    await desk.project("vision", 2, training=TrainingLimits(time_limit_seconds=3600.0))
    uid = await desk.submit("vision", "train-1", 0)
    await desk.wait(1000.0)
    await desk.runs(uid)
    await desk.wait(3599.0)
    assert await desk.phase(uid) == "running"
    await desk.wait(1.0)
    assert await stopped_with(desk, uid) == (
        "TimedOut",
        "Stopped: trainings of `vision` may run for 1 h 00 min, and this one has.",
    )
    await desk.resume(uid)
    assert await desk.phase(uid) == "starting"


async def test_a_worker_that_turns_idle_is_stopped_long_before_its_time_limit(desk: Desk) -> None:
    both = TrainingLimits(idle_gpu_seconds=120.0, time_limit_seconds=86_400.0)
    await desk.project("vision", 2, training=both)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    await desk.gpus_work()
    await desk.wait(119.0)
    await desk.gpus_work(*await devices_of(desk, uid))
    await desk.wait(500.0)
    limits = (await desk.stored(uid)).status.limits
    assert limits is not None
    assert limits.stops_because == "TimeLimit"
    await desk.gpus_work()
    await desk.wait(120.0)
    assert await desk.phase(uid) == "stopping"


async def test_a_changed_rule_holds_for_running_trainings_only_when_asked(desk: Desk) -> None:
    project = await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    project.spec = msgspec.structs.replace(
        project.spec, training=TrainingLimits(time_limit_seconds=60.0)
    )
    project = await desk.ledger.update(project)
    await desk.recover()
    await desk.wait(120.0)
    assert await desk.phase(uid) == "running"
    project.spec = msgspec.structs.replace(
        project.spec, training=TrainingLimits(time_limit_seconds=60.0, apply_to_running=True)
    )
    await desk.ledger.update(project)
    await desk.recover()
    assert await desk.phase(uid) == "stopping"


async def test_after_a_crash_the_gpus_count_as_idle_from_then_on(desk: Desk) -> None:
    await desk.project("vision", 2, training=IDLE)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    await desk.gpus_work()
    await desk.wait(100.0)
    await desk.recover()
    await desk.wait(119.0)
    assert await desk.phase(uid) == "running"
    await desk.wait(1.0)
    assert await desk.phase(uid) == "stopping"


async def test_limits_of_one_kind_are_none_of_the_other(desk: Desk) -> None:
    await desk.project("vision", 2, training=IDLE)
    await desk.project("speech", 2, interactive=InteractiveLimits(idle_timeout_seconds=60.0))
    workspace = await desk.submit("vision", "workspace-ada", kind="workspace")
    training = await desk.submit("speech", "train-1")
    await desk.runs(workspace, training)
    await desk.gpus_work()
    await desk.wait(1000.0)
    assert await desk.phases(workspace, training) == ["running", "running"]


async def test_a_training_cannot_be_kept_like_a_workspace(desk: Desk) -> None:
    await desk.project("vision", 2, training=IDLE)
    uid = await desk.submit("vision", "train-1")
    await desk.runs(uid)
    with pytest.raises(NotAccepted, match="only a running workspace"):
        await LiveState(desk.loop).extend(uid)


async def test_what_work_used_and_left_idle_is_in_the_account(desk: Desk) -> None:
    """Two GPUs for 25 min: 10 min one of them at work, 5 min none, 10 min nobody looked."""
    await desk.project("vision", 2)
    uid = await desk.submit("vision", "train-1", 2)
    await desk.runs(uid)
    first = (await devices_of(desk, uid))[0]
    await desk.gpus_work(first)
    await desk.wait(600.0)
    await desk.gpus_work()
    await desk.wait(300.0)
    desk.busy = None
    await desk.wait(600.0)
    (line,) = await desk.ledger.usage(by="workload", since=desk.now - 1500.0, until=desk.now)
    assert line.gpu_seconds == pytest.approx(3000.0)
    assert line.gpu_used_seconds == pytest.approx(600.0)
    assert line.gpu_idle_seconds == pytest.approx(600.0)


async def test_use_that_nobody_measures_counts_as_work(desk: Desk) -> None:
    """As on a cluster without an agent on its nodes: neither is stopped, for hours."""
    await desk.project(
        "vision", 4, training=IDLE, interactive=InteractiveLimits(idle_timeout_seconds=120.0)
    )
    training = await desk.submit("vision", "train-1")
    workspace = await desk.submit("vision", "workspace-ada", kind="workspace")
    await desk.runs(training, workspace)
    await desk.wait(4 * 3600.0)
    assert await desk.phases(training, workspace) == ["running", "running"]


@pytest.mark.parametrize(
    "failing", ["not looked at", "no answer", "no counters", "one is left out"]
)
async def test_a_reading_that_is_stale_or_failed_counts_as_work(desk: Desk, failing: str) -> None:
    """The idle time counts from the first reading that says so again."""
    await desk.project("vision", 2, training=IDLE)
    uid = await desk.submit("vision", "train-1", 2)
    await desk.runs(uid)
    await desk.gpus_work()
    idle = [DeviceUse(index=i, utilization=0.0, memory_used_mib=0) for i in range(4)]
    silent = [msgspec.structs.replace(one, known=False) for one in idle]
    use = {"no counters": silent, "one is left out": idle[:1]}.get(failing, [])
    desk.busy = None
    for _ in range(20):
        await desk.wait(30.0)
        if failing != "not looked at":
            desk.loop.enqueue(DevicesSampled(desk.facts, tuple(use)))
            await desk.settle()
    assert await desk.phase(uid) == "running"
    await desk.gpus_work()
    await desk.wait(119.0)
    assert await desk.phase(uid) == "running"
    await desk.wait(1.0)
    assert await desk.phase(uid) == "stopping"


async def test_the_time_limit_goes_on_over_suspension_preemption_and_failures(desk: Desk) -> None:
    await desk.project("vision", 4, training=TrainingLimits(time_limit_seconds=100.0))
    uid = await desk.submit("vision", "train-1", 4)
    await desk.runs(uid)
    await desk.wait(30.0)
    await desk.change(uid, suspend=True)
    await desk.ends(uid, 143)
    await desk.wait(500.0)
    await desk.resume(uid)
    await desk.runs(uid)
    await desk.wait(10.0)
    urgent = await desk.submit("vision", "urgent", 4, priority="very-high")
    assert await desk.phase(uid) == "preempting"
    await desk.ends(uid, 143)
    await desk.runs(urgent)
    await desk.wait(50.0)
    await desk.ends(urgent)
    await desk.runs(uid)
    await desk.wait(30.0)
    await desk.ends(uid, 1)  # it is run again after a pause
    await desk.wait(60.0)
    await desk.runs(uid)
    await desk.recover()
    await desk.wait(29.0)
    assert await desk.phase(uid) == "running"
    await desk.wait(1.0)
    assert (await stopped_with(desk, uid))[0] == "TimedOut"
    await desk.resume(uid)  # as submitting it again would
    await desk.runs(uid)
    await desk.wait(99.0)
    assert await desk.phase(uid) == "running"
    await desk.wait(1.0)
    assert await desk.phase(uid) == "stopping"


async def test_work_may_have_lower_limits_of_its_own_and_changes_hold_at_once(desk: Desk) -> None:
    await desk.project("vision", 2, training=TrainingLimits(time_limit_seconds=600.0))
    uid = await desk.submit("vision", "train-1", 1)
    await desk.runs(uid)
    await desk.wait(100.0)
    await desk.change(uid, time_limit_seconds=6000.0)
    limits = (await desk.stored(uid)).status.limits
    assert limits is not None
    assert limits.stops_at == desk.now + 500.0
    await desk.change(uid, time_limit_seconds=101.0)
    await desk.wait(1.0)
    assert await stopped_with(desk, uid) == (
        "TimedOut",
        "Stopped: it has run for its time limit of 1 min 41 s.",
    )
    idle = await desk.submit("vision", "idle", 1)
    await desk.change(idle, idle_timeout_seconds=60.0)
    await desk.runs(idle)
    await desk.gpus_work()
    await desk.wait(60.0)
    assert (await stopped_with(desk, idle))[1] == (
        "Stopped after 1 min without work on its GPUs; its idle timeout is 1 min."
    )
