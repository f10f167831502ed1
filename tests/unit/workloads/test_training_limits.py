"""A project's limits of trainings in virtual time: idle GPUs, time, and which rule holds."""

import msgspec
import pytest

from carrel_scheduler.node.contract import DeviceUse
from carrel_scheduler.workloads.contract import NotAccepted
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DevicesSampled
from carrel_schema.objects import InteractiveLimits, TrainingLimits
from unit.workloads.harness import SchedulerHarness, node_facts

IDLE = TrainingLimits(idle_gpu_seconds=120.0)


async def devices_of(harness: SchedulerHarness, uid: str) -> tuple[int, ...]:
    return tuple(
        index for task in (await harness.stored(uid)).status.tasks for index in task.devices
    )


async def stopped_with(harness: SchedulerHarness, uid: str) -> tuple[str, str]:
    """Its processes end as asked; the token and the sentence it is at rest with."""
    assert await harness.phase(uid) == "stopping"
    await harness.ends(uid, 143)
    status = (await harness.stored(uid)).status
    assert status.phase == "stopped"
    assert status.limits is None
    assert status.reason is not None
    return status.reason.token, status.reason.sentence


async def test_a_training_with_idle_gpus_is_stopped_and_any_gpu_work_resets(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2, training=IDLE)
    uid = await harness.submit("vision", "train-1", 2)
    await harness.runs(uid)
    await harness.gpus_work()
    await harness.wait(119.0)
    await harness.gpus_work((await devices_of(harness, uid))[-1])
    await harness.wait(1.0)
    await harness.gpus_work()
    await harness.wait(118.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    token, sentence = await stopped_with(harness, uid)
    assert token == "Idle"
    assert sentence == (
        "Stopped after 2 min without work on its GPUs; trainings of `vision` "
        "may leave their GPUs idle for 2 min."
    )


async def test_an_idle_training_that_was_stopped_can_be_resumed(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2, training=IDLE)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    await harness.gpus_work()
    await harness.wait(120.0)
    await stopped_with(harness, uid)
    await harness.wait(500.0)
    await harness.resume(uid)
    await harness.runs(uid)
    await harness.gpus_work()
    await harness.wait(119.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    assert await harness.phase(uid) == "stopping"


async def test_work_on_anothers_gpu_is_none_of_its_own(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4, training=IDLE)
    idle = await harness.submit("vision", "idle")
    busy = await harness.submit("vision", "busy")
    await harness.runs(idle, busy)
    await harness.gpus_work(*await devices_of(harness, busy))
    facts = msgspec.structs.replace(node_facts(4), name="other")
    use = tuple(DeviceUse(index=index, utilization=1.0, memory_used_mib=0) for index in range(4))
    harness.loop.enqueue(DevicesSampled(facts, use))
    await harness.wait(120.0)
    assert await harness.phases(idle, busy) == ["stopping", "running"]


async def test_the_stop_is_announced_while_its_gpus_are_idle_and_not_while_they_work(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2, training=IDLE)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    await harness.gpus_work()
    began = harness.now
    await harness.wait(60.0)
    limits = (await harness.stored(uid)).status.limits
    assert limits is not None
    assert (limits.stops_because, limits.stops_at) == ("Idle", began + 120.0)
    await harness.gpus_work(*await devices_of(harness, uid))
    assert (await harness.stored(uid)).status.limits is None
    await harness.wait(1000.0)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.limits) == ("running", None)


async def test_a_steady_worker_is_looked_at_once_per_idle_time(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2, training=IDLE)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    for _ in range(60):
        await harness.gpus_work(*await devices_of(harness, uid))
        await harness.wait(1.0)
        await harness.gpus_work()
        await harness.wait(9.0)
    assert await harness.phase(uid) == "running"
    assert len(harness.loop.timers) <= 2


async def test_a_training_without_gpus_is_never_idle(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2, training=IDLE)
    uid = await harness.submit("vision", "count", 0)
    await harness.runs(uid)
    await harness.wait(100_000.0)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.limits) == ("running", None)


async def test_the_time_limit_counts_from_the_start_of_the_run(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2, training=TrainingLimits(time_limit_seconds=3600.0))
    uid = await harness.submit("vision", "train-1", 0)
    await harness.wait(1000.0)
    await harness.runs(uid)
    await harness.wait(3599.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    assert await stopped_with(harness, uid) == (
        "TimedOut",
        "Stopped: trainings of `vision` may run for 1 h 00 min, and this one has.",
    )
    await harness.resume(uid)
    assert await harness.phase(uid) == "starting"


async def test_a_worker_that_turns_idle_is_stopped_long_before_its_time_limit(
    harness: SchedulerHarness,
) -> None:
    both = TrainingLimits(idle_gpu_seconds=120.0, time_limit_seconds=86_400.0)
    await harness.project("vision", 2, training=both)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    await harness.gpus_work()
    await harness.wait(119.0)
    await harness.gpus_work(*await devices_of(harness, uid))
    await harness.wait(500.0)
    limits = (await harness.stored(uid)).status.limits
    assert limits is not None
    assert limits.stops_because == "TimeLimit"
    await harness.gpus_work()
    await harness.wait(120.0)
    assert await harness.phase(uid) == "stopping"


async def test_a_changed_rule_holds_for_running_trainings_only_when_asked(
    harness: SchedulerHarness,
) -> None:
    project = await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    project.spec = msgspec.structs.replace(
        project.spec, training=TrainingLimits(time_limit_seconds=60.0)
    )
    project = await harness.ledger.update(project)
    await harness.recover()
    await harness.wait(120.0)
    assert await harness.phase(uid) == "running"
    project.spec = msgspec.structs.replace(
        project.spec, training=TrainingLimits(time_limit_seconds=60.0, apply_to_running=True)
    )
    await harness.ledger.update(project)
    await harness.recover()
    assert await harness.phase(uid) == "stopping"


async def test_after_a_crash_the_gpus_count_as_idle_from_then_on(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2, training=IDLE)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    await harness.gpus_work()
    await harness.wait(100.0)
    await harness.recover()
    await harness.wait(119.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    assert await harness.phase(uid) == "stopping"


async def test_limits_of_one_kind_are_none_of_the_other(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2, training=IDLE)
    await harness.project("speech", 2, interactive=InteractiveLimits(idle_timeout_seconds=60.0))
    workspace = await harness.submit("vision", "workspace-ada", kind="workspace")
    training = await harness.submit("speech", "train-1")
    await harness.runs(workspace, training)
    await harness.gpus_work()
    await harness.wait(1000.0)
    assert await harness.phases(workspace, training) == ["running", "running"]


async def test_a_training_cannot_be_kept_like_a_workspace(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2, training=IDLE)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    with pytest.raises(NotAccepted, match="only a running workspace"):
        await LiveState(harness.loop).extend(uid)


async def test_what_work_used_and_left_idle_is_in_the_account(harness: SchedulerHarness) -> None:
    """Two GPUs for 25 min: 10 min one of them at work, 5 min none, 10 min nobody looked."""
    await harness.project("vision", 2)
    uid = await harness.submit("vision", "train-1", 2)
    await harness.runs(uid)
    first = (await devices_of(harness, uid))[0]
    await harness.gpus_work(first)
    await harness.wait(600.0)
    await harness.gpus_work()
    await harness.wait(300.0)
    harness.busy = None
    await harness.wait(600.0)
    (line,) = await harness.ledger.usage(
        by="workload", since=harness.now - 1500.0, until=harness.now
    )
    assert line.gpu_seconds == pytest.approx(3000.0)
    assert line.gpu_used_seconds == pytest.approx(600.0)
    assert line.gpu_idle_seconds == pytest.approx(600.0)


async def test_use_that_nobody_measures_counts_as_work(harness: SchedulerHarness) -> None:
    """As on a cluster without an agent on its nodes: neither is stopped, for hours."""
    await harness.project(
        "vision", 4, training=IDLE, interactive=InteractiveLimits(idle_timeout_seconds=120.0)
    )
    training = await harness.submit("vision", "train-1")
    workspace = await harness.submit("vision", "workspace-ada", kind="workspace")
    await harness.runs(training, workspace)
    await harness.wait(4 * 3600.0)
    assert await harness.phases(training, workspace) == ["running", "running"]


@pytest.mark.parametrize(
    "failing", ["not looked at", "no answer", "no counters", "one is left out"]
)
async def test_a_reading_that_is_stale_or_failed_counts_as_work(
    harness: SchedulerHarness, failing: str
) -> None:
    """The idle time counts from the first reading that says so again."""
    await harness.project("vision", 2, training=IDLE)
    uid = await harness.submit("vision", "train-1", 2)
    await harness.runs(uid)
    await harness.gpus_work()
    idle = [DeviceUse(index=i, utilization=0.0, memory_used_mib=0) for i in range(4)]
    silent = [msgspec.structs.replace(one, known=False) for one in idle]
    use = {"no counters": silent, "one is left out": idle[:1]}.get(failing, [])
    harness.busy = None
    for _ in range(20):
        await harness.wait(30.0)
        if failing != "not looked at":
            harness.loop.enqueue(DevicesSampled(harness.facts, tuple(use)))
            await harness.settle()
    assert await harness.phase(uid) == "running"
    await harness.gpus_work()
    await harness.wait(119.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    assert await harness.phase(uid) == "stopping"


async def test_the_time_limit_goes_on_over_suspension_preemption_and_failures(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4, training=TrainingLimits(time_limit_seconds=100.0))
    uid = await harness.submit("vision", "train-1", 4)
    await harness.runs(uid)
    await harness.wait(30.0)
    await harness.change(uid, suspend=True)
    await harness.ends(uid, 143)
    await harness.wait(500.0)
    await harness.resume(uid)
    await harness.runs(uid)
    await harness.wait(10.0)
    urgent = await harness.submit("vision", "urgent", 4, priority="very-high")
    assert await harness.phase(uid) == "preempting"
    await harness.ends(uid, 143)
    await harness.runs(urgent)
    await harness.wait(50.0)
    await harness.ends(urgent)
    await harness.runs(uid)
    await harness.wait(30.0)
    await harness.ends(uid, 1)  # it is run again after a pause
    await harness.wait(60.0)
    await harness.runs(uid)
    await harness.recover()
    await harness.wait(29.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    assert (await stopped_with(harness, uid))[0] == "TimedOut"
    await harness.resume(uid)  # as submitting it again would
    await harness.runs(uid)
    await harness.wait(99.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    assert await harness.phase(uid) == "stopping"


async def test_work_may_have_lower_limits_of_its_own_and_changes_hold_at_once(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2, training=TrainingLimits(time_limit_seconds=600.0))
    uid = await harness.submit("vision", "train-1", 1)
    await harness.runs(uid)
    await harness.wait(100.0)
    await harness.change(uid, time_limit_seconds=6000.0)
    limits = (await harness.stored(uid)).status.limits
    assert limits is not None
    assert limits.stops_at == harness.now + 500.0
    await harness.change(uid, time_limit_seconds=101.0)
    await harness.wait(1.0)
    assert await stopped_with(harness, uid) == (
        "TimedOut",
        "Stopped: it has run for its time limit of 1 min 41 s.",
    )
    idle = await harness.submit("vision", "idle", 1)
    await harness.change(idle, idle_timeout_seconds=60.0)
    await harness.runs(idle)
    await harness.gpus_work()
    await harness.wait(60.0)
    assert (await stopped_with(harness, idle))[1] == (
        "Stopped after 1 min without work on its GPUs; its idle timeout is 1 min."
    )
