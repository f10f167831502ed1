"""The order of a project's users, through the reconciler: who starts, and who is told why not."""

import msgspec

from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import ProjectChanged
from unit.workloads.harness import SchedulerHarness


async def test_who_holds_less_starts_first_and_the_other_is_told(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4, user_order="fair-share")
    ada = [await harness.submit("vision", f"ada-{n}", gpus=2, user="ada") for n in range(3)]
    ben = await harness.submit("vision", "ben-0", gpus=2, user="ben")
    assert await harness.phases(*ada, ben) == ["starting", "starting", "pending", "pending"]
    reason = (await harness.stored(ada[2])).status.reason
    assert reason is not None
    assert reason.sentence.endswith(
        "Its user holds 4 GPUs of `vision`; later work of users who hold less goes first."
    )
    await harness.runs(ada[0])
    await harness.ends(ada[0])
    assert await harness.phases(ada[2], ben) == ["pending", "starting"]


async def test_a_changed_order_counts_for_what_waits(harness: SchedulerHarness) -> None:
    made = await harness.project("vision", 4)
    first = await harness.submit("vision", "first", gpus=4, user="ada")
    second = await harness.submit("vision", "second", gpus=2, user="ada")
    small = await harness.submit("vision", "small", gpus=1, user="ada")
    theirs = await harness.submit("vision", "theirs", gpus=2, user="ben")
    waiting = (second, small, theirs)
    assert await harness.phases(first, *waiting) == ["starting", "pending", "pending", "pending"]
    made.spec = msgspec.structs.replace(made.spec, user_order="fair-share")
    made = await harness.ledger.update(made)
    harness.loop.enqueue(ProjectChanged(Change(ChangeType.MODIFIED, 99, made)))
    await harness.settle()
    await harness.runs(first)
    await harness.ends(first)
    assert await harness.phases(*waiting) == ["starting", "pending", "starting"]


async def test_the_preview_of_a_project_foresees_the_order(harness: SchedulerHarness) -> None:
    made = await harness.project("vision", 4, over_quota=False)
    first = await harness.submit("vision", "first", gpus=2, user="ada")
    await harness.submit("vision", "second", gpus=2, user="ada")
    assert await harness.phase(first) == "starting"
    spec = msgspec.structs.replace(made.spec, user_order="fair-share", max_gpus_per_user=4)
    found = LiveState(harness.loop).preview_project("vision", msgspec.json.encode(spec))
    assert not found.would_start
    assert not found.would_give_way
    assert harness.loop.state.queues.table.fair_users == [False], "a preview changes nothing"
