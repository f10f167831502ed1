"""What a preemption cost is known once the tasks have ended: they may save their work meanwhile."""

from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_schema.history import Report
from carrel_schema.objects import Preemption
from unit.workloads.harness import SchedulerHarness


async def preempted(
    harness: SchedulerHarness, *, saved_at_step: int | None, exit_code: int
) -> Preemption:
    """The facts of a training that ran for 100 s, and for 10 s of its grace period."""
    await harness.project("a", 2)
    await harness.project("b", 2)
    ours = [await harness.submit("a", f"a{n}", preemptible=True) for n in range(4)]
    await harness.runs(*ours)
    await harness.wait(100.0)
    await harness.submit("b", "b0")
    await harness.settle()
    (victim,) = [uid for uid in ours if await harness.phase(uid) == "preempting"]
    if saved_at_step is not None:
        await harness.wait(9.0)
        live = LiveState(harness.loop)
        await live.report(victim, Report(at=harness.now, checkpoint_step=saved_at_step))
        await harness.wait(1.0)
    else:
        await harness.wait(10.0)
    await harness.ends(victim, exit_code)
    found = (await harness.stored(victim)).status
    assert found.last_preemption is not None
    if found.phase == "pending":
        assert found.reason is not None
        assert "of work was lost" in found.reason.sentence
    return found.last_preemption


async def test_a_checkpoint_of_the_grace_period_saves_the_work(harness: SchedulerHarness) -> None:
    last = await preempted(harness, saved_at_step=1200, exit_code=143)
    assert (last.lost_seconds, last.checkpoint_step) == (1.0, 1200)


async def test_without_one_all_of_the_attempt_is_lost(harness: SchedulerHarness) -> None:
    last = await preempted(harness, saved_at_step=None, exit_code=143)
    assert last.lost_seconds >= 110.0
    assert last.checkpoint_step is None


async def test_work_that_was_done_meanwhile_is_not_lost(harness: SchedulerHarness) -> None:
    last = await preempted(harness, saved_at_step=None, exit_code=0)
    assert last.lost_seconds == 0.0
