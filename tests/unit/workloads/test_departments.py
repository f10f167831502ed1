"""Departments in the loop: their limit binds all their projects, whatever comes first."""

from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DepartmentChanged
from carrel_schema.objects import Department, DepartmentSpec, Meta, Quota
from unit.workloads.desk import Desk


async def department(desk: Desk, gpus: int, change: ChangeType = ChangeType.ADDED) -> None:
    spec = DepartmentSpec(quota=Quota(gpu_milli=None), limit=Quota(gpu_milli=gpus * 1000))
    made = Department(meta=Meta(name="sciences", uid="d1", created_at=desk.now), spec=spec)
    desk.loop.enqueue(DepartmentChanged(Change(change, 1, made)))
    await desk.settle()


def running(desk: Desk) -> list[str]:
    return [one.workload.meta.name for one in desk.loop.cache.holding]


async def two_projects(desk: Desk) -> None:
    for name in ("vision", "speech"):
        await desk.project(name, 2, department="sciences")


async def test_a_departments_limit_binds_its_projects_together(desk: Desk) -> None:
    await department(desk, 2)
    await two_projects(desk)
    for number in range(2):
        await desk.submit("vision", f"v{number}")
        await desk.submit("speech", f"s{number}")
    assert len(running(desk)) == 2


async def test_a_project_may_come_before_its_department(desk: Desk) -> None:
    await two_projects(desk)
    await desk.submit("vision", "v0")
    await department(desk, 2)
    await desk.submit("speech", "s0")
    await desk.submit("speech", "s1")
    assert running(desk) == ["v0", "s0"]
    await department(desk, 3, ChangeType.MODIFIED)
    assert running(desk) == ["v0", "s0", "s1"]


async def test_projects_stand_for_themselves_when_it_is_gone(desk: Desk) -> None:
    await department(desk, 1)
    await two_projects(desk)
    await desk.submit("vision", "v0")
    await desk.submit("speech", "s0")
    assert running(desk) == ["v0"]
    await department(desk, 1, ChangeType.DELETED)
    assert running(desk) == ["v0", "s0"]
    await department(desk, 1, ChangeType.DELETED)


async def test_departments_are_no_projects_and_survive_a_restart(desk: Desk) -> None:
    limit = Quota(gpu_milli=1000)
    spec = DepartmentSpec(quota=Quota(gpu_milli=None), limit=limit)
    await desk.ledger.create(Department(meta=Meta(name="sciences"), spec=spec))
    await desk.recover()
    assert LiveState(desk.loop).project_use() == {}
    await two_projects(desk)
    await desk.recover()
    await desk.submit("vision", "v0")
    await desk.submit("speech", "s0")
    assert running(desk) == ["v0"]
    live = LiveState(desk.loop)
    vision = live.project_use()["vision"]
    assert vision.gpu_allocated_milli == 1000
    assert live.project_use("vision") == {"vision": vision}
    assert live.project_use("sciences") == {}
