"""A project that is deleted while it has work: the work ends, the loop and everybody else go on."""

import msgspec

from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import ProjectChanged
from carrel_schema.objects import Project, Workload
from unit.workloads.harness import SchedulerHarness


async def delete(harness: SchedulerHarness, name: str) -> None:
    """Remove the object behind the API's back."""
    gone = await harness.ledger.delete(Project, name)
    tell(harness, gone, ChangeType.DELETED)
    await harness.settle()


def tell(harness: SchedulerHarness, project: Project, change: ChangeType) -> None:
    harness.loop.enqueue(ProjectChanged(Change(change, project.meta.resource_version, project)))


async def busy(harness: SchedulerHarness) -> tuple[str, str, str]:
    """A project with work that runs and work that waits, and another project."""
    await harness.project("vision", 2)
    await harness.project("speech", 2)
    runs = await harness.submit("vision", "runs", gpus=2)
    waits = await harness.submit("vision", "waits", gpus=3)
    other = await harness.submit("speech", "other", gpus=1)
    await harness.runs(runs, other)
    return runs, waits, other


async def test_its_work_is_stopped_and_what_waits_says_why(harness: SchedulerHarness) -> None:
    runs, waits, other = await busy(harness)
    await delete(harness, "vision")
    assert await harness.phases(runs, waits, other) == ["stopping", "pending", "running"]
    assert [task.workload_uid for task in harness.engine.stopping] == [runs]
    reasons = [(await harness.stored(uid)).status.reason for uid in (runs, waits)]
    assert [reason.sentence for reason in reasons if reason] == [
        "Stopped: project `vision` was deleted.",
        "Waits: project `vision` was deleted.",
    ]
    assert "vision" in harness.loop.state.queues.slots
    assert "vision" not in LiveState(harness.loop).project_use()
    await harness.ends(runs, None, signal=15)
    assert await harness.phase(runs) == "stopped"
    assert "vision" not in harness.loop.state.queues.slots
    assert not harness.loop.cache.draining
    more = await harness.submit("speech", "more", gpus=3)
    assert await harness.phase(more) == "starting"
    assert not list(harness.loop.quarantine.items)


async def test_a_restart_in_between_goes_on_with_it(harness: SchedulerHarness) -> None:
    runs, waits, other = await busy(harness)
    await harness.ledger.delete(Project, "vision")  # nobody looked
    await harness.recover()
    assert await harness.phases(runs, waits, other) == ["stopping", "pending", "running"]
    await harness.recover()
    await harness.ends(runs, None, signal=15)
    assert await harness.phases(runs, other) == ["stopped", "running"]
    assert "vision" not in harness.loop.state.queues.slots
    await harness.recover()
    assert await harness.phases(runs, waits, other) == ["stopped", "pending", "running"]


async def test_a_project_of_that_name_takes_over_what_waits(harness: SchedulerHarness) -> None:
    runs, waits, _ = await busy(harness)
    await delete(harness, "vision")
    await harness.project("vision", 3)  # while the old one still drains
    assert not harness.loop.cache.draining
    await harness.ends(runs, None, signal=15)
    assert await harness.phase(waits) == "starting"
    await harness.resume(runs)
    assert await harness.phase(runs) == "pending"


async def test_its_work_can_be_deleted_afterwards(harness: SchedulerHarness) -> None:
    runs, waits, _ = await busy(harness)
    await delete(harness, "vision")
    await harness.change(waits, delete=True)
    await harness.ends(runs, None, signal=15)
    await harness.change(runs, delete=True)
    left = {one.meta.name for one in (await harness.ledger.list(Workload)).items}
    assert left == {"other"}


async def test_a_project_that_is_kept_is_let_go_when_nothing_runs(
    harness: SchedulerHarness,
) -> None:
    """As a cluster has it: the object is there, marked, for as long as its finalizer is."""
    runs, _, _ = await busy(harness)
    project = await harness.ledger.get(Project, "vision")
    project.meta = msgspec.structs.replace(project.meta, deleting=True)
    tell(harness, project, ChangeType.MODIFIED)
    await harness.settle()
    assert await harness.phase(runs) == "stopping"
    assert (await harness.ledger.get(Project, "vision")).meta.name == "vision"
    await harness.ends(runs, None, signal=15)
    left = [one.meta.name for one in (await harness.ledger.list(Project)).items]
    assert left == ["speech"]


async def test_an_empty_project_goes_at_once(harness: SchedulerHarness) -> None:
    await harness.project("vision", 2)
    await delete(harness, "vision")
    assert "vision" not in harness.loop.state.queues.slots
