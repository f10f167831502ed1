"""Work under a budget that is used up: its rights, what it is told, and what it gets back."""

import asyncio

import pytest

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.reconcile.watchers import watch_budgets
from carrel_scheduler.workloads.state.events import BudgetsUsedUp
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from unit.workloads.harness import SchedulerHarness

TOLD = "Its priority is lowered: the budget of project/vision is used up."


async def used_up(harness: SchedulerHarness, *scopes: str) -> None:
    harness.loop.enqueue(BudgetsUsedUp(frozenset(scopes)))
    await harness.settle()


async def test_new_and_waiting_work_comes_last_and_is_told_so(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    blocker = await harness.submit("vision", "blocker", gpus=4, priority=95, user="ada")
    waits = await harness.submit("vision", "waits", gpus=2, priority=60, user="ada")
    assert await harness.phases(blocker, waits) == ["starting", "pending"]
    await used_up(harness, "project/vision")
    stored = await harness.stored(waits)
    assert stored.status.reason is not None
    assert stored.status.reason.sentence.endswith(TOLD)
    assert stored.status.reason.data["lowered_by"] == stored.status.lowered_by == "project/vision"
    assert (await harness.stored(blocker)).status.lowered_by == "", (
        "it keeps the rights of its start"
    )
    job = harness.loop.state.job(waits)
    assert (job.spec.priority, job.spec.preemptible) == (10, Preemptibility.YES)
    new = await harness.submit("vision", "new", gpus=4, priority=90, user="ada")
    cpu_only = await harness.submit("vision", "cpu-only", gpus=0, priority=90, user="ada")
    assert harness.loop.state.job(new).spec.priority == 10
    assert harness.loop.state.job(cpu_only).spec.priority == 90
    await harness.runs(blocker)
    await harness.ends(blocker)
    assert await harness.phases(waits, new) == ["starting", "pending"], (
        "the older of equal priority"
    )


async def test_what_waits_gets_its_priority_back(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    blocker = await harness.submit("vision", "blocker", gpus=4, priority=95, user="ada")
    await used_up(harness, "user/ben", "platform")
    waits = await harness.submit("vision", "waits", gpus=2, priority=60, user="ada")
    low = await harness.submit("vision", "low", gpus=2, priority=3, user="ada")
    assert (await harness.stored(waits)).status.lowered_by == "platform"
    assert harness.loop.state.job(low).spec.priority == 3, "it asked for less itself"
    await used_up(harness)
    assert harness.loop.state.job(waits).spec.priority == 60
    reason = (await harness.stored(waits)).status.reason
    assert reason is not None
    assert "lowered" not in reason.sentence
    assert await harness.phase(blocker) == "starting"


async def test_work_of_others_is_not_lowered_and_takes_its_place(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    await used_up(harness, "user/ada")
    theirs = await harness.submit("vision", "theirs", gpus=4, preemptible=False, user="ada")
    assert await harness.phase(theirs) == "starting"
    await harness.runs(theirs)
    bens = await harness.submit("vision", "bens", gpus=4, user="ben")
    assert await harness.phases(theirs, bens) == ["preempting", "pending"]


async def test_work_that_started_so_is_so_after_a_restart(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    await used_up(harness, "project/vision")
    runs = await harness.submit("vision", "runs", gpus=4, preemptible=False, user="ada")
    await harness.runs(runs)
    await harness.recover()
    job = harness.loop.state.job(runs)
    assert (job.spec.priority, job.spec.preemptible) == (10, Preemptibility.YES)
    assert (await harness.stored(runs)).status.lowered_by == "project/vision"


async def test_a_forecast_says_so(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    await harness.submit("vision", "blocker", gpus=4, priority=20, user="ada")
    await used_up(harness, "project/vision")
    spec = WorkloadSpec(user="ada", resources=Resources(gpu_milli=1000), command=["true"])
    asked = Workload(meta=Meta(name="j", project="vision", uid="j", created_at=2e9), spec=spec)
    told = LiveState(harness.loop).forecast(asked)
    assert told.sentence.endswith(TOLD)


async def test_the_reconciler_hears_of_budgets_when_they_change(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [frozenset[str](), frozenset({"platform"}), frozenset({"platform"}), frozenset[str]()]
    heard: list[frozenset[str]] = []

    async def ask() -> frozenset[str]:
        if not answers:
            raise asyncio.CancelledError
        return answers.pop(0)

    def hear(event: BudgetsUsedUp) -> None:
        heard.append(event.scopes)

    monkeypatch.setattr(harness.loop, "enqueue", hear)
    with pytest.raises(asyncio.CancelledError):
        await watch_budgets(ask, harness.loop, 0)
    assert heard == [frozenset({"platform"}), frozenset()]
