"""What a preemption cost is known once the tasks have ended: they may save their work meanwhile."""

from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_schema.history import Report
from carrel_schema.objects import Preemption
from unit.workloads.desk import Desk


async def preempted(desk: Desk, *, saved_at_step: int | None, exit_code: int) -> Preemption:
    """The facts of a training that ran for 100 s, and for 10 s of its grace period."""
    await desk.project("a", 2)
    await desk.project("b", 2)
    ours = [await desk.submit("a", f"a{n}", preemptible=True) for n in range(4)]
    await desk.runs(*ours)
    await desk.wait(100.0)
    await desk.submit("b", "b0")
    await desk.settle()
    (victim,) = [uid for uid in ours if await desk.phase(uid) == "preempting"]
    if saved_at_step is not None:
        await desk.wait(9.0)
        live = LiveState(desk.loop)
        await live.report(victim, Report(at=desk.now, checkpoint_step=saved_at_step))
        await desk.wait(1.0)
    else:
        await desk.wait(10.0)
    await desk.ends(victim, exit_code)
    found = (await desk.stored(victim)).status
    assert found.last_preemption is not None
    if found.phase == "pending":
        assert found.reason is not None
        assert "of work was lost" in found.reason.sentence
    return found.last_preemption


async def test_a_checkpoint_of_the_grace_period_saves_the_work(desk: Desk) -> None:
    last = await preempted(desk, saved_at_step=1200, exit_code=143)
    assert (last.lost_seconds, last.checkpoint_step) == (1.0, 1200)


async def test_without_one_all_of_the_attempt_is_lost(desk: Desk) -> None:
    last = await preempted(desk, saved_at_step=None, exit_code=143)
    assert last.lost_seconds >= 110.0
    assert last.checkpoint_step is None


async def test_work_that_was_done_meanwhile_is_not_lost(desk: Desk) -> None:
    last = await preempted(desk, saved_at_step=None, exit_code=0)
    assert last.lost_seconds == 0.0
