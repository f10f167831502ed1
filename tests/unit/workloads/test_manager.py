"""The worker of composite work: nothing that happens while it looks ends it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from carrel_scheduler.ledger.records import Fenced
from carrel_scheduler.ledger.store import VersionConflict
from carrel_scheduler.workloads.controllers.contract import DesiredState, NewPart
from carrel_scheduler.workloads.controllers.manager import Manager
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Workload, WorkloadSpec
from unit.workloads.harness import SchedulerHarness


class Wishes:
    """A controller that wants one part, of a name that a test chooses."""

    def __init__(self) -> None:
        self.looked = 0
        self.wrong: Exception | None = None

    @property
    def kind(self) -> WorkloadKind:
        return "experiment"

    async def look(self, owner: Workload, parts: Sequence[Workload], now: float) -> DesiredState:
        self.looked += 1
        if self.wrong is not None:
            raise self.wrong
        return DesiredState(
            status=msgspec.structs.replace(owner.status),
            created=[NewPart(number=1, name="taken", spec=WorkloadSpec(kind="trial"))],
        )

    async def removed(self, owner: Workload) -> None:
        pass


@asynccontextmanager
async def working(
    harness: SchedulerHarness,
) -> AsyncIterator[tuple[Manager, Wishes, "asyncio.Task[None]"]]:
    wishes = Wishes()
    manager = Manager(
        harness.ledger,
        clock=lambda: harness.now,
        publish=lambda *_: None,
        quarantine=harness.loop.quarantine,
    )
    manager.add(wishes)
    manager.epoch = harness.loop.epoch
    task = asyncio.create_task(manager.run())
    yield manager, wishes, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_looked(
    harness: SchedulerHarness, manager: Manager, uid: str, wishes: Wishes, times: int
) -> None:
    async with asyncio.timeout(60):
        while wishes.looked < times:
            harness.now += 10.0
            manager.wake(uid)
            await asyncio.sleep(0.01)


async def test_an_edit_while_a_taken_name_is_told_ends_nothing(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 1)
    await harness.submit("vision", "taken")
    uid = await harness.submit("vision", "study", kind="experiment")

    async def changed_meanwhile(**_: Any) -> None:
        raise VersionConflict("changed meanwhile")

    async with working(harness) as (manager, wishes, task):
        with monkeypatch.context() as patched:
            patched.setattr(harness.ledger, "record", changed_meanwhile)
            manager.changed(await harness.stored(uid))
            await until_looked(harness, manager, uid, wishes, 3)
            assert not task.done()
        await until_looked(harness, manager, uid, wishes, wishes.looked + 2)
        reason = (await harness.stored(uid)).status.reason
    assert reason is not None
    assert reason.token == "NameTaken"


async def test_one_that_cannot_be_looked_at_is_set_aside_until_it_can(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 1)
    uid = await harness.submit("vision", "study", kind="experiment")
    async with working(harness) as (manager, wishes, task):
        wishes.wrong = ZeroDivisionError()
        manager.changed(await harness.stored(uid))
        await until_looked(harness, manager, uid, wishes, 3)
        assert harness.loop.quarantine.holds("composite", uid)
        wishes.wrong = None
        await until_looked(harness, manager, uid, wishes, wishes.looked + 2)
        assert not harness.loop.quarantine.holds("composite", uid)
        assert not task.done()


async def test_another_scheduler_ends_it(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    uid = await harness.submit("vision", "study", kind="experiment")
    async with working(harness) as (manager, wishes, task):
        wishes.wrong = Fenced("another")
        manager.changed(await harness.stored(uid))
        async with asyncio.timeout(60):
            await asyncio.wait([task])
        assert task.exception() is not None
