"""A schedule on a real ledger under a clock of the test's: fires, survives a crash, is listed."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Ledger, Transition
from carrel_scheduler.workloads.controllers.manager import Manager
from carrel_scheduler.workloads.controllers.schedules import Schedules
from carrel_schema.objects import Meta, Phase, Workload, WorkloadSpec, WorkloadStatus
from carrel_schema.sections import NotebookSpec, ScheduleSpec

TIMEOUT_SECONDS = 120.0
MIDNIGHT = 1_780_272_000.0


class Clockwork:
    """A ledger, a manager with schedules, and the time."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.now = MIDNIGHT + 1.0
        self.manager = self._fresh()
        self._task: asyncio.Task[None] | None = None

    def _fresh(self) -> Manager:
        made = Manager(self.ledger, clock=lambda: self.now, publish=lambda *_: None)
        made.add(Schedules())
        return made

    async def begin(self) -> None:
        self.manager.epoch = await self.ledger.begin_epoch()
        self._task = asyncio.create_task(self.manager.run())

    async def crash(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def restart(self) -> None:
        await self.crash()
        self.manager = self._fresh()
        for one in (await self.ledger.list(Workload)).items:
            self.manager.changed(one)
        await self.begin()

    async def submit(self) -> None:
        work = Workload(
            meta=Meta(name="nightly", project="vision", uid="s1", created_at=MIDNIGHT),
            spec=WorkloadSpec(
                kind="schedule",
                user="ada",
                notebook=NotebookSpec(path="/a.ipynb"),
                schedule=ScheduleSpec(cron="0 * * * *", keep=1),
            ),
            status=WorkloadStatus(queued_at=MIDNIGHT),
        )
        row = Transition(
            at=MIDNIGHT,
            epoch=0,
            workload_uid="s1",
            workload="nightly",
            project="vision",
            user="ada",
            kind="schedule",
            attempt=0,
            from_phase="",
            to_phase="pending",
        )
        self.manager.changed(await self.ledger.create_workload(work, secrets={}, transition=row))

    async def at(self, hours: float) -> None:
        """Time passes."""
        self.now = MIDNIGHT + hours * 3600.0
        self.manager.wake("s1")

    async def ends(self, name: str, phase: Phase) -> None:
        run = await self.ledger.get(Workload, name, "vision")
        run.status.phase = phase
        self.manager.changed(await self.ledger.update_status(run))

    async def until(self, met: Callable[[Workload], bool], name: str = "nightly") -> Workload:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for change in self.ledger.watch(Workload, 0):
                if change.object.meta.name == name and met(change.object):
                    return change.object
        raise AssertionError("the watch ended")

    async def ran(self, count: int) -> Workload:
        return await self.until(
            lambda one: one.status.schedule is not None and one.status.schedule.runs == count
        )


@pytest.fixture
async def work(tmp_path: Path) -> AsyncIterator[Clockwork]:
    ids = (f"id-{number}" for number in itertools.count())
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    ledger = await open_ledger(url, clock=lambda: 1.0, ids=ids.__next__)
    made = Clockwork(ledger)
    await made.begin()
    yield made
    await made.crash()
    await ledger.close()


async def test_it_fires_and_old_runs_go(work: Clockwork) -> None:
    await work.submit()
    await work.until(lambda one: one.status.phase == "running")
    for hour in range(1, 4):
        await work.at(hour)
        await work.ran(hour)
        await work.ends(f"nightly-{hour}", "succeeded")
    run = await work.ledger.get(Workload, "nightly-3", "vision")
    assert (run.spec.kind, run.spec.user, run.spec.owner) == ("notebook", "ada", "s1")
    for gone in ("nightly-1", "nightly-2"):
        await work.until(lambda one: one.spec.delete, gone)
    assert not (await work.ledger.get(Workload, "nightly-3", "vision")).spec.delete


async def test_a_scheduler_that_was_away_begins_one_run_and_none_twice(work: Clockwork) -> None:
    await work.submit()
    await work.at(1.0)
    await work.ran(1)
    await work.ends("nightly-1", "failed")
    await work.crash()
    work.now = MIDNIGHT + 5.5 * 3600.0
    await work.restart()
    owner = await work.ran(2)
    assert owner.status.schedule is not None
    assert owner.status.schedule.missed == 3
    await work.restart()
    await work.at(6.0)
    owner = await work.until(
        lambda one: one.status.schedule is not None and one.status.schedule.skipped == 1
    )
    listed = await work.ledger.list(Workload, workload_kind="notebook")
    assert [one.meta.name for one in listed.items] == ["nightly-1", "nightly-2"]
