"""The most GPUs of each user of a project: who waits, why, and when it goes on."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.admission import NotAdmitted, admit
from carrel_scheduler.workloads.reconcile import user_limits
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import ProjectChanged
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from carrel_schema.sections import Elastic
from unit.workloads.harness import SchedulerHarness


def asks(gpus: int, user: str = "ada", **more: Any) -> Workload:
    resources = Resources(gpu_milli=gpus * 1000)
    spec = WorkloadSpec(kind="training", user=user, resources=resources, command=["true"], **more)
    return Workload(meta=Meta(name="job", project="vision", uid="asked", created_at=2e9), spec=spec)


async def test_a_user_waits_for_own_work_while_others_go_on(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4, max_gpus_per_user=2)
    first = await harness.submit("vision", "first", gpus=2, user="ada")
    second = await harness.submit("vision", "second", gpus=1, user="ada")
    cpu_only = await harness.submit("vision", "cpu-only", gpus=0, user="ada")
    theirs = await harness.submit("vision", "theirs", gpus=2, user="ben")
    assert await harness.phases(first, second, cpu_only, theirs) == [
        "starting",
        "pending",
        "starting",
        "starting",
    ]
    reason = (await harness.stored(second)).status.reason
    assert reason is not None
    assert (reason.token, reason.cls) == ("OverUserLimit", "held-back")
    assert reason.sentence == (
        "Each user of the project `vision` may have 2 GPUs at a time; this asks for 1, and ada has"
        " 2 in use or before it in the queue."
    )
    await harness.runs(first)
    await harness.ends(first)
    assert await harness.phase(second) == "starting"


async def test_two_that_do_not_fit_together_never_start_at_once(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4, max_gpus_per_user=3)
    low = await harness.submit("vision", "low", gpus=2, priority=1, user="ada")
    high = await harness.submit("vision", "high", gpus=2, priority=90, user="ada")
    small = await harness.submit("vision", "small", gpus=1, priority=1, user="ada")
    phases = await harness.phases(low, high, small)
    assert phases.count("starting") == 2
    assert await harness.phase(small) == "starting"
    assert harness.loop.state.project_use("vision").gpu_milli == 3000


async def test_waiting_work_follows_the_limit_by_priority(harness: SchedulerHarness) -> None:
    made = await harness.project("vision", 4)
    blocker = await harness.submit("vision", "blocker", gpus=4, user="ben", priority=95)
    low = await harness.submit("vision", "low", gpus=2, priority=1, user="ada")
    high = await harness.submit("vision", "high", gpus=2, priority=90, user="ada")
    assert await harness.phases(blocker, low, high) == ["starting", "pending", "pending"]
    made.spec = msgspec.structs.replace(made.spec, max_gpus_per_user=2)
    made = await harness.ledger.update(made)
    harness.loop.enqueue(ProjectChanged(Change(ChangeType.MODIFIED, 99, made)))
    await harness.settle()
    held = (await harness.stored(low)).status.reason
    assert held is not None
    assert held.token == "OverUserLimit"
    forecast = LiveState(harness.loop).forecast(asks(1))
    assert (forecast.token, forecast.data["held_gpus"]) == ("OverUserLimit", 2.0)
    await harness.runs(blocker)
    await harness.ends(blocker)
    assert await harness.phases(low, high) == ["pending", "starting"]
    await harness.recover()
    assert await harness.phases(low, high) == ["pending", "starting"]
    made.spec = msgspec.structs.replace(made.spec, max_gpus_per_user=None)
    made = await harness.ledger.update(made)
    harness.loop.enqueue(ProjectChanged(Change(ChangeType.MODIFIED, 100, made)))
    await harness.settle()
    assert await harness.phases(low, high) == ["starting", "starting"]


async def test_what_no_user_may_ever_have_is_refused(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4, max_gpus_per_user=2)
    live = LiveState(harness.loop)
    admit(asks(2), live)
    with pytest.raises(NotAdmitted) as refused:
        admit(asks(3), live)
    assert (refused.value.code, refused.value.field) == ("limit_never_met", "gpus")
    assert refused.value.expected == "Ask for 2 GPUs or less in all."
    growing = asks(1, tasks=4, elastic=Elastic(min_tasks=1))
    growing.spec.kind = "distributed"
    with pytest.raises(NotAdmitted, match="this asks for 4"):
        admit(growing, live)


async def test_the_preview_of_a_project_foresees_a_change_of_the_limit(
    harness: SchedulerHarness,
) -> None:
    made = await harness.project("vision", 4, max_gpus_per_user=2)
    first = await harness.submit("vision", "first", gpus=2, user="ada")
    second = await harness.submit("vision", "second", gpus=2, user="ada")
    assert await harness.phases(first, second) == ["starting", "pending"]
    live = LiveState(harness.loop)

    def preview(most: float | None) -> list[str]:
        spec = msgspec.structs.replace(made.spec, max_gpus_per_user=most)
        found = live.preview_project("vision", msgspec.json.encode(spec))
        assert not found.would_give_way
        return list(found.would_start)

    assert preview(None) == ["vision/second"]
    assert preview(4) == ["vision/second"]
    assert preview(3) == []
    assert preview(2) == []
    assert await harness.phase(second) == "pending", "a preview changes nothing"


async def test_a_preview_that_would_hold_work_back_leaves_it_in_the_queue(
    harness: SchedulerHarness,
) -> None:
    made = await harness.project("vision", 4)
    blocker = await harness.submit("vision", "blocker", gpus=4, user="ben")
    waits = await harness.submit("vision", "waits", gpus=2, user="ada")
    assert await harness.phases(blocker, waits) == ["starting", "pending"]
    limited = msgspec.structs.replace(made.spec, max_gpus_per_user=1)
    content = msgspec.json.encode(limited)
    loop = harness.loop
    _, leaving = user_limits.changed_by(loop.cache, loop.state, {"vision": 1000})
    assert [one.uid for one in leaving] == [waits]
    found = LiveState(loop).preview_project("vision", content)
    assert (list(found.would_start), list(found.would_give_way)) == ([], [])
    await harness.runs(blocker)
    await harness.ends(blocker)
    assert await harness.phase(waits) == "starting"
