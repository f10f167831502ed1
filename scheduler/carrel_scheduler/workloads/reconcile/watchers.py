"""Carrying what happens elsewhere into the loop: the ledger's watch, the engine's, the devices."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from carrel_scheduler.engines.contract import Engine
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import Change, ChangeType, Expired
from carrel_scheduler.node.contract import DeviceProvider, DeviceUse, NodeFacts
from carrel_scheduler.workloads.reconcile.events import (
    DepartmentChanged,
    DevicesSampled,
    ProjectChanged,
    TaskSeen,
    WorkloadChanged,
)
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_schema.objects import Department, ObjectT, Project, Workload

SAMPLE_SECONDS = 5.0


async def pump_workloads(ledger: Ledger, loop: Reconciler, version: int) -> None:
    """Every change of a workload after ``version``."""
    async for change in _changes(ledger, Workload, version, tuple):
        loop.enqueue(WorkloadChanged(change))


async def pump_projects(ledger: Ledger, loop: Reconciler, version: int) -> None:
    """Every change of a project after ``version``."""
    async for change in _changes(ledger, Project, version, loop.cache.projects.values):
        loop.enqueue(ProjectChanged(change))


async def pump_departments(ledger: Ledger, loop: Reconciler, version: int) -> None:
    """Every change of a department after ``version``."""
    async for change in _changes(ledger, Department, version, loop.cache.departments.values):
        loop.enqueue(DepartmentChanged(change))


async def _changes(
    ledger: Ledger,
    kind: type[ObjectT],
    version: int,
    known: Callable[[], Iterable[ObjectT]],
) -> AsyncIterator[Change[ObjectT]]:
    """Every change; where some are no longer kept, all that is there and what of ``known`` is not.

    A workload is let go by the loop alone, so it needs not be told of those that are gone.
    """
    while True:
        try:
            async for change in ledger.watch(kind, version, statuses=False):
                yield change
        except Expired:
            page = await ledger.list(kind)
        else:
            return
        version = page.version
        there = {obj.meta.uid for obj in page.items}
        for gone in [obj for obj in known() if obj.meta.uid not in there]:
            yield Change(ChangeType.DELETED, version, gone)
        for obj in page.items:
            yield Change(ChangeType.ADDED, version, obj)


async def pump_engine(engine: Engine, loop: Reconciler, subscribed: asyncio.Event) -> None:
    """Everything the engine sees; ``subscribed`` is set once nothing can be missed any more."""
    stream = engine.watch()
    subscribed.set()
    async for status in stream:
        loop.enqueue(TaskSeen(status))


async def pump_devices(
    provider: DeviceProvider,
    loop: Reconciler,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Look at the devices every few seconds, in a thread: NVML calls may block.

    A look that fails leaves what is known as it is; without a use, facts are told all the same.
    """
    while True:
        facts: NodeFacts | None = None
        with loop.quarantine.guard("device", "facts"):
            facts = await asyncio.to_thread(provider.facts)
        if facts is not None:
            use: Sequence[DeviceUse] = ()
            with loop.quarantine.guard("device", "use"):
                use = await asyncio.to_thread(provider.sample, _pids_by_device(loop))
            loop.enqueue(DevicesSampled(facts, tuple(use)))
        await pause(SAMPLE_SECONDS)


def _pids_by_device(loop: Reconciler) -> dict[int, list[int]]:
    pids: dict[int, list[int]] = {}
    for entry in loop.cache:
        for info in entry.workload.status.tasks:
            if info.pid and info.ended_at is None:
                for device in info.devices:
                    pids.setdefault(device, []).append(info.pid)
    return pids
