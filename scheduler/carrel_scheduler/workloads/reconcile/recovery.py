"""Recovery: read the ledger, list the engine's tasks, and match the two.

``adoption`` takes over one workload. Processes that no live workload owns are ended, and their
devices are withheld until then. A workload that cannot be taken over is set aside, and the rest
goes on.
"""

import logging
from collections.abc import Sequence

import msgspec

from carrel_scheduler.engines.contract import TaskPhase, TaskStatus
from carrel_scheduler.engines.core_state import purge
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.node.contract import Device, NodeFacts
from carrel_scheduler.workloads.faults.guarding import Savepoint
from carrel_scheduler.workloads.lifecycle import task_events
from carrel_scheduler.workloads.nodes import device_records, health
from carrel_scheduler.workloads.reconcile import adoption
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.state.events import (
    DepartmentChanged,
    DevicesSampled,
    ProjectChanged,
)
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_scheduler.workloads.state.phases import FINAL
from carrel_schema.kinds import COMPOSITES
from carrel_schema.objects import Department, Project, Workload

log = logging.getLogger(__name__)


async def recover(
    loop: Reconciler, facts: Sequence[NodeFacts], tasks: Sequence[TaskStatus]
) -> tuple[int, int]:
    """Fill the loop's cache and state.

    Args:
        loop: a fresh reconciler.
        facts: the nodes there are.
        tasks: what the engine lists.

    Returns:
        The versions from which projects (departments with them) and workloads are to be watched.
    """
    loop.epoch = loop.composites.epoch = await loop.ledger.begin_epoch()
    await _restore_devices(loop, tasks)
    for node in facts:
        loop.enqueue(DevicesSampled(node, ()))
    projects = await loop.ledger.list(Project)
    for project in projects.items:
        loop.enqueue(ProjectChanged(Change(ChangeType.ADDED, projects.version, project)))
    # Listed after the projects: receiving a change in between again does no harm.
    departments = await loop.ledger.list(Department)
    for department in departments.items:
        loop.enqueue(DepartmentChanged(Change(ChangeType.ADDED, departments.version, department)))
    await loop.reconcile()
    workloads = await loop.ledger.list(Workload)
    changes = loop.begin()
    _take_all(loop, changes, workloads.items, tasks)
    loop.handlers.observe_nodes_again(changes)
    await loop.finish(changes)
    log.info("recovered %d workloads and %d tasks", len(tuple(loop.cache)), len(tasks))
    return projects.version, workloads.version


async def _restore_devices(loop: Reconciler, tasks: Sequence[TaskStatus]) -> None:
    """Restore records of devices: cordons, and the indices that live tasks know them by."""
    settings = await loop.ledger.settings()
    with loop.quarantine.guard("record", health.SETTING):
        stored = settings.get(health.SETTING, [])
        loop.withheld.cordons.restore(msgspec.convert(stored, list[health.CordonRecord]))
    with loop.quarantine.guard("record", device_records.SETTING):
        kept = msgspec.convert(
            settings.get(device_records.SETTING, {}), dict[str, tuple[Device, ...]]
        )
        nodes = {task.node for task in tasks if task.phase is not TaskPhase.ENDED}
        loop.handlers.known_devices.restore(kept, nodes)


def _take_all(
    loop: Reconciler,
    changes: PassChanges,
    workloads: Sequence[Workload],
    tasks: Sequence[TaskStatus],
) -> None:
    seen = {task.id for task in tasks}
    for workload in workloads:
        uid = workload.meta.uid
        before = Savepoint(changes)
        name = f"{workload.meta.project}/{workload.meta.name}"
        with loop.quarantine.guard("workload", uid, name=name) as guard:
            if workload.spec.owner or workload.spec.kind in COMPOSITES:
                loop.composites.changed(workload)
            if workload.spec.kind in COMPOSITES:
                continue
            if workload.status.phase in FINAL and not workload.spec.delete:
                continue
            adoption.take(changes, workload, seen)
        if guard.failed:
            _leave_out(loop, before, uid)
    # The member that ended first, while the scheduler was away, caused the end of the others.
    for task in sorted(tasks, key=lambda one: one.ended_at or changes.now):
        if loop.cache.get(task.id.workload_uid) is None and task.phase is not TaskPhase.ENDED:
            loop.withheld.keep(task, loop.state)
        before = Savepoint(changes)
        with loop.quarantine.guard("task", task.id.workload_uid) as guard:
            task_events.on_task(changes, task)
        if guard.failed:
            before.restore()
            loop.rebuilds.damaged(task.id.workload_uid)
    for entry in tuple(loop.cache):
        before = Savepoint(changes)
        with loop.quarantine.guard("workload", entry.uid) as guard:
            adoption.follow(changes, entry)
        if guard.failed:
            before.restore()
            loop.rebuilds.damaged(entry.uid)


def _leave_out(loop: Reconciler, before: Savepoint, uid: str) -> None:
    """Leave a workload out; its tasks are then treated like those of unknown workloads."""
    before.restore()
    purge(loop.state, uid)
    loop.cache.drop(uid)
