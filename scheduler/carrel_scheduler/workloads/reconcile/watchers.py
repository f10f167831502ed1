"""Watchers: each turns one source into events of the reconciler.

Sources: the ledger's objects, the engine's tasks, devices, rendezvous of gangs, usage history.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

from carrel_scheduler.engines.contract import Engine
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import Change, ChangeType, Expired
from carrel_scheduler.node.contract import DeviceProvider, DeviceUse, NodeFacts
from carrel_scheduler.workloads.faults.guarding import FATAL
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.reconcile.usage_history import PastUse
from carrel_scheduler.workloads.state import gpu_use, shape
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.events import (
    BudgetsUsedUp,
    DepartmentChanged,
    DevicesSampled,
    MembersMet,
    ProjectChanged,
    TaskSeen,
    WorkloadChanged,
)
from carrel_schema.objects import Department, ObjectT, Project, Workload

SAMPLE_SECONDS = 5.0
RENDEZVOUS_SECONDS = 1.0
USAGE_SECONDS = 300.0
BUDGET_SECONDS = 60.0

MetAt = Callable[[CachedWorkload, int], Awaitable[frozenset[int]]]
"""A function from a gang and a port to the indices of the members who have joined there."""


async def watch_workloads(ledger: Ledger, loop: Reconciler, version: int) -> None:
    """Enqueue changes of workloads after ``version``."""
    async for change in _changes(ledger, Workload, version, tuple):
        loop.metrics.delivered("workloads")
        loop.enqueue(WorkloadChanged(change))


async def watch_projects(ledger: Ledger, loop: Reconciler, version: int) -> None:
    """Enqueue changes of projects after ``version``."""
    async for change in _changes(ledger, Project, version, loop.cache.projects.values):
        loop.metrics.delivered("projects")
        loop.enqueue(ProjectChanged(change))


async def watch_departments(ledger: Ledger, loop: Reconciler, version: int) -> None:
    """Enqueue changes of departments after ``version``."""
    async for change in _changes(ledger, Department, version, loop.cache.departments.values):
        loop.metrics.delivered("departments")
        loop.enqueue(DepartmentChanged(change))


async def _changes(
    ledger: Ledger,
    kind: type[ObjectT],
    version: int,
    known: Callable[[], Iterable[ObjectT]],
) -> AsyncIterator[Change[ObjectT]]:
    """Yield changes; where some are no longer kept, a new listing, compared with ``known``.

    Workloads leave the cache by the reconciler alone, so it needs no event of those that are gone.
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


async def watch_engine(engine: Engine, loop: Reconciler, subscribed: asyncio.Event) -> None:
    """Enqueue task events of the engine; ``subscribed`` is set once none can be missed."""
    stream = engine.watch()
    subscribed.set()
    async for status in stream:
        loop.metrics.delivered("tasks")
        loop.enqueue(TaskSeen(status))


async def sample_devices(
    provider: DeviceProvider,
    loop: Reconciler,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Sample the devices every few seconds, in a thread: NVML calls may block.

    A sample that fails leaves what is known as it is; facts are delivered without a use, too.
    """
    while True:
        facts: NodeFacts | None = None
        with loop.quarantine.guard("device", "facts"):
            facts = await asyncio.to_thread(provider.facts)
        if facts is not None:
            use: Sequence[DeviceUse] = ()
            with loop.quarantine.guard("device", "use"):
                use = await asyncio.to_thread(provider.sample, _pids_by_device(loop))
                workloads = {str(pid): uid for uid, _, pid in _running(loop)}
                use = [gpu_use.named(one, workloads.get) for one in use]
            loop.metrics.delivered("devices")
            loop.enqueue(DevicesSampled(facts, tuple(use)))
        await pause(SAMPLE_SECONDS)


def _pids_by_device(loop: Reconciler) -> dict[int, list[int]]:
    pids: dict[int, list[int]] = {}
    for _, devices, pid in _running(loop):
        for device in devices:
            pids.setdefault(device, []).append(pid)
    return pids


def _running(loop: Reconciler) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Uid, devices and first process of each running task."""
    for entry in loop.cache.holding:
        for info in entry.workload.status.tasks:
            if info.pid and info.ended_at is None:
                yield entry.uid, info.devices, info.pid


async def watch_rendezvous(
    met_at: MetAt, loop: Reconciler, look_seconds: float = RENDEZVOUS_SECONDS
) -> None:
    """Check which members have met, for as long as some are expected."""
    while True:
        for entry in tuple(loop.cache.holding):
            if entry.meet_until is None:
                continue
            with loop.quarantine.guard("task", f"rendezvous {entry.uid}"):
                seen = await met_at(entry, shape.port_of(entry.workload))
                if seen - entry.joined:
                    loop.enqueue(MembersMet(entry.uid, seen))
        await asyncio.sleep(look_seconds)


async def watch_budgets(
    used_up: Callable[[], Awaitable[frozenset[str]]],
    loop: Reconciler,
    look_seconds: float = BUDGET_SECONDS,
) -> None:
    """Tell the reconciler which budgets that lower priorities are used up."""
    known: frozenset[str] = frozenset()
    while True:
        with loop.quarantine.guard("message", "budgets", fatal=FATAL):
            found = await used_up()
            if found != known:
                loop.enqueue(BudgetsUsedUp(found))
                known = found
        await asyncio.sleep(look_seconds)


async def watch_usage(
    past: PastUse,
    loop: Reconciler,
    clock: Callable[[], float],
    look_seconds: float = USAGE_SECONDS,
) -> None:
    """Read past use from the ledger every few minutes."""
    while True:
        loop.enqueue(await past.follow(clock()))
        await asyncio.sleep(look_seconds)
