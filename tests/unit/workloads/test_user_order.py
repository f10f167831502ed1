"""The order of a project's users, through the reconciler: who starts, and who is told why not."""

import msgspec

from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import ProjectChanged
from unit.workloads.desk import Desk


async def test_who_holds_less_starts_first_and_the_other_is_told(desk: Desk) -> None:
    await desk.project("vision", 4, user_order="fair-share")
    ada = [await desk.submit("vision", f"ada-{n}", gpus=2, user="ada") for n in range(3)]
    ben = await desk.submit("vision", "ben-0", gpus=2, user="ben")
    assert await desk.phases(*ada, ben) == ["starting", "starting", "pending", "pending"]
    reason = (await desk.stored(ada[2])).status.reason
    assert reason is not None
    assert reason.sentence.endswith(
        "Its user holds 4 GPUs of `vision`; later work of users who hold less goes first."
    )
    await desk.runs(ada[0])
    await desk.ends(ada[0])
    assert await desk.phases(ada[2], ben) == ["pending", "starting"]


async def test_a_changed_order_counts_for_what_waits(desk: Desk) -> None:
    made = await desk.project("vision", 4)
    first = await desk.submit("vision", "first", gpus=4, user="ada")
    second = await desk.submit("vision", "second", gpus=2, user="ada")
    small = await desk.submit("vision", "small", gpus=1, user="ada")
    theirs = await desk.submit("vision", "theirs", gpus=2, user="ben")
    waiting = (second, small, theirs)
    assert await desk.phases(first, *waiting) == ["starting", "pending", "pending", "pending"]
    made.spec = msgspec.structs.replace(made.spec, user_order="fair-share")
    made = await desk.ledger.update(made)
    desk.loop.enqueue(ProjectChanged(Change(ChangeType.MODIFIED, 99, made)))
    await desk.settle()
    await desk.runs(first)
    await desk.ends(first)
    assert await desk.phases(*waiting) == ["starting", "pending", "starting"]


async def test_the_preview_of_a_project_foresees_the_order(desk: Desk) -> None:
    made = await desk.project("vision", 4, over_quota=False)
    first = await desk.submit("vision", "first", gpus=2, user="ada")
    await desk.submit("vision", "second", gpus=2, user="ada")
    assert await desk.phase(first) == "starting"
    spec = msgspec.structs.replace(made.spec, user_order="fair-share", max_gpus_per_user=4)
    found = LiveState(desk.loop).preview_project("vision", msgspec.json.encode(spec))
    assert not found.would_start
    assert not found.would_give_way
    assert desk.loop.state.queues.table.fair_users == [False], "a preview changes nothing"
