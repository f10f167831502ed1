"""The most GPUs of each user of a project: who waits, why, and when it goes on."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.policy.admission import NotAdmitted, admit
from carrel_scheduler.workloads.reconcile import user_limits
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import ProjectChanged
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from carrel_schema.sections import Elastic
from unit.workloads.desk import Desk


def asks(gpus: int, user: str = "ada", **more: Any) -> Workload:
    resources = Resources(gpu_milli=gpus * 1000)
    spec = WorkloadSpec(kind="training", user=user, resources=resources, command=["true"], **more)
    return Workload(meta=Meta(name="job", project="vision", uid="asked", created_at=2e9), spec=spec)


async def test_a_user_waits_for_own_work_while_others_go_on(desk: Desk) -> None:
    await desk.project("vision", 4, max_gpus_per_user=2)
    first = await desk.submit("vision", "first", gpus=2, user="ada")
    second = await desk.submit("vision", "second", gpus=1, user="ada")
    cpu_only = await desk.submit("vision", "cpu-only", gpus=0, user="ada")
    theirs = await desk.submit("vision", "theirs", gpus=2, user="ben")
    assert await desk.phases(first, second, cpu_only, theirs) == [
        "starting",
        "pending",
        "starting",
        "starting",
    ]
    reason = (await desk.stored(second)).status.reason
    assert reason is not None
    assert (reason.token, reason.cls) == ("OverUserLimit", "held-back")
    assert reason.sentence == (
        "Each user of the project `vision` may have 2 GPUs at a time; this asks for 1, and ada has"
        " 2 in use or before it in the queue."
    )
    await desk.runs(first)
    await desk.ends(first)
    assert await desk.phase(second) == "starting"


async def test_two_that_do_not_fit_together_never_start_at_once(desk: Desk) -> None:
    await desk.project("vision", 4, max_gpus_per_user=3)
    low = await desk.submit("vision", "low", gpus=2, priority=1, user="ada")
    high = await desk.submit("vision", "high", gpus=2, priority=90, user="ada")
    small = await desk.submit("vision", "small", gpus=1, priority=1, user="ada")
    phases = await desk.phases(low, high, small)
    assert phases.count("starting") == 2
    assert await desk.phase(small) == "starting"
    assert desk.loop.state.project_use("vision").gpu_milli == 3000


async def test_waiting_work_follows_the_limit_by_priority(desk: Desk) -> None:
    made = await desk.project("vision", 4)
    blocker = await desk.submit("vision", "blocker", gpus=4, user="ben", priority=95)
    low = await desk.submit("vision", "low", gpus=2, priority=1, user="ada")
    high = await desk.submit("vision", "high", gpus=2, priority=90, user="ada")
    assert await desk.phases(blocker, low, high) == ["starting", "pending", "pending"]
    made.spec = msgspec.structs.replace(made.spec, max_gpus_per_user=2)
    made = await desk.ledger.update(made)
    desk.loop.enqueue(ProjectChanged(Change(ChangeType.MODIFIED, 99, made)))
    await desk.settle()
    held = (await desk.stored(low)).status.reason
    assert held is not None
    assert held.token == "OverUserLimit"
    forecast = LiveState(desk.loop).forecast(asks(1))
    assert (forecast.token, forecast.data["held_gpus"]) == ("OverUserLimit", 2.0)
    await desk.runs(blocker)
    await desk.ends(blocker)
    assert await desk.phases(low, high) == ["pending", "starting"]
    await desk.recover()
    assert await desk.phases(low, high) == ["pending", "starting"]
    made.spec = msgspec.structs.replace(made.spec, max_gpus_per_user=None)
    made = await desk.ledger.update(made)
    desk.loop.enqueue(ProjectChanged(Change(ChangeType.MODIFIED, 100, made)))
    await desk.settle()
    assert await desk.phases(low, high) == ["starting", "starting"]


async def test_what_no_user_may_ever_have_is_refused(desk: Desk) -> None:
    await desk.project("vision", 4, max_gpus_per_user=2)
    live = LiveState(desk.loop)
    admit(asks(2), live)
    with pytest.raises(NotAdmitted) as refused:
        admit(asks(3), live)
    assert (refused.value.code, refused.value.field) == ("limit_never_met", "gpus")
    assert refused.value.expected == "Ask for 2 GPUs or less in all."
    growing = asks(1, tasks=4, elastic=Elastic(min_tasks=1))
    growing.spec.kind = "distributed"
    with pytest.raises(NotAdmitted, match="this asks for 4"):
        admit(growing, live)


async def test_the_preview_of_a_project_foresees_a_change_of_the_limit(desk: Desk) -> None:
    made = await desk.project("vision", 4, max_gpus_per_user=2)
    first = await desk.submit("vision", "first", gpus=2, user="ada")
    second = await desk.submit("vision", "second", gpus=2, user="ada")
    assert await desk.phases(first, second) == ["starting", "pending"]
    live = LiveState(desk.loop)

    def preview(most: float | None) -> list[str]:
        spec = msgspec.structs.replace(made.spec, max_gpus_per_user=most)
        found = live.preview_project("vision", msgspec.json.encode(spec))
        assert not found.would_give_way
        return list(found.would_start)

    assert preview(None) == ["vision/second"]
    assert preview(4) == ["vision/second"]
    assert preview(3) == []
    assert preview(2) == []
    assert await desk.phase(second) == "pending", "a preview changes nothing"


async def test_a_preview_that_would_hold_work_back_leaves_it_in_the_queue(desk: Desk) -> None:
    made = await desk.project("vision", 4)
    blocker = await desk.submit("vision", "blocker", gpus=4, user="ben")
    waits = await desk.submit("vision", "waits", gpus=2, user="ada")
    assert await desk.phases(blocker, waits) == ["starting", "pending"]
    limited = msgspec.structs.replace(made.spec, max_gpus_per_user=1)
    content = msgspec.json.encode(limited)
    loop = desk.loop
    _, leaving = user_limits.changed_by(loop.cache, loop.state, {"vision": 1000})
    assert [one.uid for one in leaving] == [waits]
    found = LiveState(loop).preview_project("vision", content)
    assert (list(found.would_start), list(found.would_give_way)) == ([], [])
    await desk.runs(blocker)
    await desk.ends(blocker)
    assert await desk.phase(waits) == "starting"
