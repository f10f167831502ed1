"""Departments in the loop: their limit binds all their projects, whatever comes first."""

from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DepartmentChanged
from carrel_schema.objects import Department, DepartmentSpec, Meta, Quota
from unit.workloads.harness import SchedulerHarness


async def department(
    harness: SchedulerHarness, gpus: int, change: ChangeType = ChangeType.ADDED
) -> None:
    spec = DepartmentSpec(quota=Quota(gpu_milli=None), limit=Quota(gpu_milli=gpus * 1000))
    made = Department(meta=Meta(name="sciences", uid="d1", created_at=harness.now), spec=spec)
    harness.loop.enqueue(DepartmentChanged(Change(change, 1, made)))
    await harness.settle()


def running(harness: SchedulerHarness) -> list[str]:
    return [one.workload.meta.name for one in harness.loop.cache.holding]


async def two_projects(harness: SchedulerHarness) -> None:
    for name in ("vision", "speech"):
        await harness.project(name, 2, department="sciences")


async def test_a_departments_limit_binds_its_projects_together(harness: SchedulerHarness) -> None:
    await department(harness, 2)
    await two_projects(harness)
    for number in range(2):
        await harness.submit("vision", f"v{number}")
        await harness.submit("speech", f"s{number}")
    assert len(running(harness)) == 2


async def test_a_project_may_come_before_its_department(harness: SchedulerHarness) -> None:
    await two_projects(harness)
    await harness.submit("vision", "v0")
    await department(harness, 2)
    await harness.submit("speech", "s0")
    await harness.submit("speech", "s1")
    assert running(harness) == ["v0", "s0"]
    await department(harness, 3, ChangeType.MODIFIED)
    assert running(harness) == ["v0", "s0", "s1"]


async def test_projects_stand_for_themselves_when_it_is_gone(harness: SchedulerHarness) -> None:
    await department(harness, 1)
    await two_projects(harness)
    await harness.submit("vision", "v0")
    await harness.submit("speech", "s0")
    assert running(harness) == ["v0"]
    await department(harness, 1, ChangeType.DELETED)
    assert running(harness) == ["v0", "s0"]
    await department(harness, 1, ChangeType.DELETED)


async def test_departments_are_no_projects_and_survive_a_restart(harness: SchedulerHarness) -> None:
    limit = Quota(gpu_milli=1000)
    spec = DepartmentSpec(quota=Quota(gpu_milli=None), limit=limit)
    await harness.ledger.create(Department(meta=Meta(name="sciences"), spec=spec))
    await harness.recover()
    assert LiveState(harness.loop).project_use() == {}
    await two_projects(harness)
    await harness.recover()
    await harness.submit("vision", "v0")
    await harness.submit("speech", "s0")
    assert running(harness) == ["v0"]
    live = LiveState(harness.loop)
    vision = live.project_use()["vision"]
    assert vision.gpu_allocated_milli == 1000
    assert live.project_use("vision") == {"vision": vision}
    assert live.project_use("sciences") == {}
