"""A project that is deleted while it has work: the work ends, the loop and everybody else go on."""

import msgspec

from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import ProjectChanged
from carrel_schema.objects import Project, Workload
from unit.workloads.desk import Desk


async def delete(desk: Desk, name: str) -> None:
    """Remove the object behind the API's back."""
    gone = await desk.ledger.delete(Project, name)
    tell(desk, gone, ChangeType.DELETED)
    await desk.settle()


def tell(desk: Desk, project: Project, change: ChangeType) -> None:
    desk.loop.enqueue(ProjectChanged(Change(change, project.meta.resource_version, project)))


async def busy(desk: Desk) -> tuple[str, str, str]:
    """A project with work that runs and work that waits, and another project."""
    await desk.project("vision", 2)
    await desk.project("speech", 2)
    runs = await desk.submit("vision", "runs", gpus=2)
    waits = await desk.submit("vision", "waits", gpus=3)
    other = await desk.submit("speech", "other", gpus=1)
    await desk.runs(runs, other)
    return runs, waits, other


async def test_its_work_is_stopped_and_what_waits_says_why(desk: Desk) -> None:
    runs, waits, other = await busy(desk)
    await delete(desk, "vision")
    assert await desk.phases(runs, waits, other) == ["stopping", "pending", "running"]
    assert [task.workload_uid for task in desk.engine.stopping] == [runs]
    reasons = [(await desk.stored(uid)).status.reason for uid in (runs, waits)]
    assert [reason.sentence for reason in reasons if reason] == [
        "Stopped: project `vision` was deleted.",
        "Waits: project `vision` was deleted.",
    ]
    assert "vision" in desk.loop.state.queues.slots
    assert "vision" not in LiveState(desk.loop).project_use()
    await desk.ends(runs, None, signal=15)
    assert await desk.phase(runs) == "stopped"
    assert "vision" not in desk.loop.state.queues.slots
    assert not desk.loop.cache.draining
    more = await desk.submit("speech", "more", gpus=3)
    assert await desk.phase(more) == "starting"
    assert not list(desk.loop.quarantine.items)


async def test_a_restart_in_between_goes_on_with_it(desk: Desk) -> None:
    runs, waits, other = await busy(desk)
    await desk.ledger.delete(Project, "vision")  # nobody looked
    await desk.recover()
    assert await desk.phases(runs, waits, other) == ["stopping", "pending", "running"]
    await desk.recover()
    await desk.ends(runs, None, signal=15)
    assert await desk.phases(runs, other) == ["stopped", "running"]
    assert "vision" not in desk.loop.state.queues.slots
    await desk.recover()
    assert await desk.phases(runs, waits, other) == ["stopped", "pending", "running"]


async def test_a_project_of_that_name_takes_over_what_waits(desk: Desk) -> None:
    runs, waits, _ = await busy(desk)
    await delete(desk, "vision")
    await desk.project("vision", 3)  # while the old one still drains
    assert not desk.loop.cache.draining
    await desk.ends(runs, None, signal=15)
    assert await desk.phase(waits) == "starting"
    await desk.resume(runs)
    assert await desk.phase(runs) == "pending"


async def test_its_work_can_be_deleted_afterwards(desk: Desk) -> None:
    runs, waits, _ = await busy(desk)
    await delete(desk, "vision")
    await desk.change(waits, delete=True)
    await desk.ends(runs, None, signal=15)
    await desk.change(runs, delete=True)
    left = {one.meta.name for one in (await desk.ledger.list(Workload)).items}
    assert left == {"other"}


async def test_a_project_that_is_kept_is_let_go_when_nothing_runs(desk: Desk) -> None:
    """As a cluster has it: the object is there, marked, for as long as its finalizer is."""
    runs, _, _ = await busy(desk)
    project = await desk.ledger.get(Project, "vision")
    project.meta = msgspec.structs.replace(project.meta, deleting=True)
    tell(desk, project, ChangeType.MODIFIED)
    await desk.settle()
    assert await desk.phase(runs) == "stopping"
    assert (await desk.ledger.get(Project, "vision")).meta.name == "vision"
    await desk.ends(runs, None, signal=15)
    left = [one.meta.name for one in (await desk.ledger.list(Project)).items]
    assert left == ["speech"]


async def test_an_empty_project_goes_at_once(desk: Desk) -> None:
    await desk.project("vision", 2)
    await delete(desk, "vision")
    assert "vision" not in desk.loop.state.queues.slots
