"""Work that names an owner is a part of it only if a controller made it for that owner."""

from pathlib import Path

import pytest

from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.workloads.controllers.manager import Manager, part_uid
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Meta, Workload, WorkloadSpec, WorkloadStatus


def work(kind: WorkloadKind, uid: str, user: str = "ada", project: str = "vision") -> Workload:
    return Workload(
        meta=Meta(name=f"{kind}-{uid[:8]}", project=project, uid=uid, resource_version=1),
        spec=WorkloadSpec(kind=kind, user=user),
        status=WorkloadStatus(queued_at=1.0),
    )


def part(
    kind: WorkloadKind = "trial",
    user: str = "ada",
    project: str = "vision",
    owner: str = "e1",
    uid: str = "",
) -> Workload:
    made = work(kind, uid or part_uid(owner, 1), user, project)
    made.spec.owner, made.spec.part = owner, 1
    return made


FOREIGN = [
    part(kind="training"),
    part(kind="replica"),
    part(user="grace"),
    part(project="speech"),
    part(uid="chosen"),
]


@pytest.fixture
async def manager(tmp_path: Path) -> Manager:
    ledger = await open_ledger(
        f"sqlite:///{tmp_path}/ledger.sqlite", clock=lambda: 1.0, ids=iter("abc").__next__
    )
    return Manager(ledger, clock=lambda: 1.0, publish=lambda *_: None)


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("owner_first", [True, False])
async def test_what_no_controller_made_for_it_is_no_part(
    manager: Manager, foreign: Workload, owner_first: bool
) -> None:
    heard = [work("experiment", "e1"), foreign]
    for one in heard if owner_first else reversed(heard):
        manager.changed(one)
    assert manager.parts("e1") == []


async def test_a_foreign_end_takes_no_part_away(manager: Manager) -> None:
    manager.changed(work("experiment", "e1"))
    manager.changed(part())
    for foreign in FOREIGN:
        manager.changed(foreign, deleted=True)
    assert [one.meta.uid for one in manager.parts("e1")] == [part_uid("e1", 1)]


async def test_what_names_an_owner_that_is_not_there_is_nobodys(manager: Manager) -> None:
    manager.changed(part(owner="nobody"))
    assert manager.parts("nobody") == []
