"""The manager of composite work against a real ledger: parts made once, changed, removed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Ledger, Transition
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.workloads.controllers import contract as saying
from carrel_scheduler.workloads.controllers.contract import OWNER_LABEL, DesiredState, NewPart
from carrel_scheduler.workloads.controllers.manager import Manager, part_uid
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Meta, Workload, WorkloadSpec, WorkloadStatus

TIMEOUT_SECONDS = 120.0


class Two:
    """Wants two parts, and is done when both have succeeded."""

    kind: WorkloadKind = "experiment"

    def __init__(self) -> None:
        self.gone: list[str] = []

    async def look(self, owner: Workload, parts: Sequence[Workload], now: float) -> DesiredState:
        if owner.spec.suspend:
            status = saying.moved(owner, "stopped", now)
            return DesiredState(status, changed=saying.to_suspend(parts))
        done = len(parts) == 2 and all(part.status.phase == "succeeded" for part in parts)
        created = [
            NewPart(
                number, f"{owner.meta.name}-{number}", WorkloadSpec(kind="trial", command=["x"])
            )
            for number in range(2)
        ]
        return DesiredState(
            saying.moved(owner, "succeeded" if done else "running", now), created=created
        )

    async def removed(self, owner: Workload) -> None:
        self.gone.append(owner.meta.uid)


class ManagerHarness:
    """A ledger, a manager at work, and what was published."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.deleted = asyncio.Event()
        self.controller = Two()
        self.manager = Manager(
            ledger,
            clock=lambda: 1000.0,
            publish=lambda kind, _: self.deleted.set() if kind == "deleted" else None,
        )
        self.manager.add(self.controller)

    async def begin(self) -> asyncio.Task[None]:
        self.manager.epoch = await self.ledger.begin_epoch()
        return asyncio.create_task(self.manager.run())

    async def submit(self) -> Workload:
        work = Workload(
            meta=Meta(name="sweep", project="vision", uid="e1", created_at=1.0),
            spec=WorkloadSpec(kind="experiment", user="ada"),
            status=WorkloadStatus(queued_at=1.0),
        )
        row = Transition(
            at=1.0,
            epoch=0,
            workload_uid="e1",
            workload="sweep",
            project="vision",
            user="ada",
            kind="experiment",
            attempt=0,
            from_phase="",
            to_phase="pending",
        )
        return await self.ledger.create_workload(work, secrets={"KEY": "s"}, transition=row)

    async def until_phase(self, phase: str) -> Workload:
        return await self.until(lambda work: work.status.phase == phase, "e1")

    async def until(self, met: Callable[[Workload], bool], uid: str) -> Workload:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for change in self.ledger.watch(Workload, 0):
                if change.object.meta.uid == uid and met(change.object):
                    return change.object
        raise AssertionError(f"the watch of {uid} ended")


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ManagerHarness]:
    ledger = await open_ledger(
        f"sqlite:///{tmp_path}/ledger.sqlite", clock=lambda: 1000.0, ids=iter("abcdefg").__next__
    )
    made = ManagerHarness(ledger)
    task = await made.begin()
    yield made
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await ledger.close()


async def test_parts_are_made_once_with_the_owners_user_and_secrets(
    harness: ManagerHarness,
) -> None:
    owner = await harness.submit()
    harness.manager.changed(owner)
    harness.manager.changed(owner)
    await harness.until_phase("running")
    first = await harness.ledger.get(Workload, "sweep-0", "vision")
    assert (first.meta.uid, first.spec.owner, first.spec.part) == (part_uid("e1", 0), "e1", 0)
    assert (first.spec.user, first.meta.labels[OWNER_LABEL]) == ("ada", "sweep")
    assert await harness.ledger.secrets(first.meta.uid) == {"KEY": "s"}
    rows = await harness.ledger.transitions(workload_uid="e1")
    assert [row.to_phase for row in rows] == ["pending", "running"]


async def test_another_scheduler_finds_the_parts_that_were_made(harness: ManagerHarness) -> None:
    harness.manager.changed(await harness.submit())
    owner = await harness.until_phase("running")
    second = ManagerHarness(harness.ledger)
    task = await second.begin()
    second.manager.changed(owner)
    for number in range(2):
        part = await harness.ledger.get(Workload, f"sweep-{number}", "vision")
        part.status.phase = "succeeded"
        second.manager.changed(part)
    await harness.until_phase("succeeded")
    listed = await harness.ledger.list(Workload, workload_kind="trial")
    assert [part.meta.name for part in listed.items] == ["sweep-0", "sweep-1"]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_deleting_it_ends_its_parts_first(harness: ManagerHarness) -> None:
    harness.manager.changed(await harness.submit())
    owner = await harness.until_phase("running")
    owner.spec.delete = True
    harness.manager.changed(await harness.ledger.update(owner))
    for number in range(2):
        await harness.until(lambda part: part.spec.delete, part_uid("e1", number))
    assert (await harness.ledger.get_by_uid(Workload, "e1")).status.phase == "running"
    for number in range(2):
        part = await harness.ledger.get(Workload, f"sweep-{number}", "vision")
        await harness.ledger.record(epoch=harness.manager.epoch, removed=[part])
        harness.manager.changed(part, deleted=True)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await harness.deleted.wait()
    with pytest.raises(ObjectNotFound):
        await harness.ledger.get_by_uid(Workload, "e1")
    assert harness.controller.gone == ["e1"]


async def test_suspending_it_asks_its_parts_to_stop(harness: ManagerHarness) -> None:
    harness.manager.changed(await harness.submit())
    owner = await harness.until_phase("running")
    owner.spec.suspend = True
    harness.manager.changed(await harness.ledger.update(owner))
    await harness.until_phase("stopped")
    part = await harness.ledger.get(Workload, "sweep-0", "vision")
    assert part.spec.suspend


async def test_a_name_that_is_taken_is_said(harness: ManagerHarness) -> None:
    other = Workload(meta=Meta(name="sweep-0", project="vision"), spec=WorkloadSpec(command=["x"]))
    await harness.ledger.create(other)
    harness.manager.changed(await harness.submit())
    told = await harness.until(lambda work: work.status.reason is not None, "e1")
    assert told.status.reason is not None
    assert told.status.reason.token == "NameTaken"
    assert "`vision/sweep-0` exists already" in told.status.reason.sentence
