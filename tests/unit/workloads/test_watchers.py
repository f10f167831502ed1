"""Watches whose changes were not kept long enough: everything is told again, also what is gone."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from carrel_scheduler.ledger.store import Change, ChangeType, Expired, Page
from carrel_scheduler.node.contract import DeviceUse, NodeFacts
from carrel_scheduler.workloads.reconcile.metrics import ReconcilerMetrics
from carrel_scheduler.workloads.reconcile.watchers import sample_devices, watch_projects
from carrel_scheduler.workloads.state.events import DevicesSampled, ProjectChanged
from carrel_schema.objects import Meta, Project, ProjectSpec
from unit.workloads.harness import SchedulerHarness


def project(name: str) -> Project:
    return Project(meta=Meta(name=name, uid=f"uid-{name}"), spec=ProjectSpec())


class Forgetful:
    """A ledger whose first watch expires."""

    def __init__(self) -> None:
        self.watched: list[int] = []

    async def watch(
        self, _kind: type[Project], version: int, *, statuses: bool
    ) -> AsyncIterator[Change[Project]]:
        assert not statuses
        self.watched.append(version)
        if version == 1:
            yield Change(ChangeType.ADDED, 2, project("old"))
            raise Expired("too old")
        yield Change(ChangeType.ADDED, 11, project("later"))

    async def list(self, _kind: type[Project]) -> Page[Project]:
        return Page([project("kept"), project("new")], 10)


class Loop:
    """Hears, and knows projects."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.projects = {"kept": project("kept"), "gone": project("gone")}
        self.cache = self
        self.metrics = ReconcilerMetrics()

    def enqueue(self, message: ProjectChanged) -> None:
        change = message.change
        self.told.append((change.type.value, change.object.meta.name))


async def test_nothing_is_missed() -> None:
    ledger: Any = Forgetful()
    loop: Any = Loop()
    await watch_projects(ledger, loop, 1)
    assert loop.told == [
        ("added", "old"),
        ("deleted", "gone"),
        ("added", "kept"),
        ("added", "new"),
        ("added", "later"),
    ]
    assert ledger.watched == [1, 10]


async def test_readings_that_fail_end_no_looking(harness: SchedulerHarness) -> None:
    """The driver answers with an error now and then; what it tells in between arrives."""
    looks = itertools.count()
    told: list[DevicesSampled] = []

    class Driver:
        def facts(self) -> NodeFacts:
            if next(looks) % 2:
                raise OSError("the driver does not answer")
            return harness.facts

        def sample(self, _tasks: object) -> list[DeviceUse]:
            raise ValueError("nonsense")

    async def pause(_seconds: float) -> None:
        if next(looks) > 12:
            raise asyncio.CancelledError

    loop: Any = harness.loop
    tell, loop.enqueue = loop.enqueue, told.append
    with pytest.raises(asyncio.CancelledError):
        await sample_devices(Driver(), loop, pause)
    loop.enqueue = tell
    assert told
    assert set(told) == {DevicesSampled(harness.facts, ())}
    assert harness.loop.quarantine.counts["device", "ValueError"] == len(told)
