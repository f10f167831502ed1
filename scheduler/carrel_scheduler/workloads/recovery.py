"""Starting up: read the ledger, ask the engine, and bring the two together.

Whoever held resources in the ledger either has a process (adopted), has ended (settled now), or was
recorded but never launched (launched now; the engine refuses a second start of the same task id, so
nothing runs twice). Processes that no live workload owns are ended.
"""

import logging
from collections.abc import Sequence

from carrel_scheduler.core.events import TaskReleasing
from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.ledger.kinds import COMPOSITES
from carrel_scheduler.ledger.objects import Project, Workload
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.workloads import plans, spec_changes, task_changes, tenure
from carrel_scheduler.workloads.book import Entry, Place
from carrel_scheduler.workloads.cycle import Cycle, Stop
from carrel_scheduler.workloads.lifecycle import FINAL
from carrel_scheduler.workloads.messages import DevicesSampled, ProjectChanged
from carrel_scheduler.workloads.reconciler import Reconciler

log = logging.getLogger(__name__)


async def recover(
    loop: Reconciler, facts: Sequence[NodeFacts], tasks: Sequence[TaskStatus]
) -> tuple[int, int]:
    """Fill the loop's book and state.

    Args:
        loop: a fresh reconciler.
        facts: the nodes there are.
        tasks: what the engine lists.

    Returns:
        The versions from which projects and workloads are to be watched.
    """
    loop.epoch = loop.composites.epoch = await loop.ledger.begin_epoch()
    for node in facts:
        loop.tell(DevicesSampled(node, ()))
    projects = await loop.ledger.list(Project)
    for project in projects.items:
        loop.tell(ProjectChanged(Change(ChangeType.ADDED, projects.version, project)))
    await loop.turn()
    workloads = await loop.ledger.list(Workload)
    cycle = loop.begin()
    seen = {task.id: task for task in tasks}
    for workload in workloads.items:
        if workload.spec.owner or workload.spec.kind in COMPOSITES:
            loop.composites.heard(workload)
        if workload.spec.kind in COMPOSITES:
            continue
        if workload.status.phase in FINAL and not workload.spec.delete:
            continue
        _take(loop, cycle, workload, seen)
    for task in tasks:
        task_changes.on_task(cycle, task)
    for entry in tuple(loop.book):
        spec_changes.follow(cycle, entry)
    await loop.finish(cycle)
    log.info("recovered %d workloads and %d tasks", len(tuple(loop.book)), len(tasks))
    return projects.version, workloads.version


def _take(
    loop: Reconciler, cycle: Cycle, workload: Workload, seen: dict[TaskId, TaskStatus]
) -> None:
    entry = loop.book.add(workload)
    status = workload.status
    if entry.holding:
        _adopt(cycle, entry, seen)
    elif status.phase == "pending" and not spec_changes.asks_for_end(workload):
        if status.not_before is not None:
            loop.wake_at(status.not_before, entry.uid)
        else:
            cycle.enqueue(entry)
    if entry.claim_until is not None:
        loop.wake_at(entry.claim_until, entry.uid)
    if status.phase == "running":
        tenure.take_over(entry, cycle.now)
        loop.wake_at(cycle.now, entry.uid)


def _adopt(cycle: Cycle, entry: Entry, seen: dict[TaskId, TaskStatus]) -> None:
    status = entry.workload.status
    cycle.enqueue(entry)
    since = status.started_at if status.started_at is not None else cycle.now
    for info in status.tasks:
        cycle.place(entry, info.index, Place(info.node, info.devices), since)
    known = [entry.task_id(index) in seen for index in entry.places]
    entry.launched = any(known)
    if status.phase in ("preempting", "stopping"):
        _stop_again(cycle, entry)
    elif status.phase == "starting" and not all(known):
        _launch(cycle, entry)
        return
    for index in sorted(entry.places):
        task_id = entry.task_id(index)
        if task_id not in seen:
            task_changes.on_task(cycle, _vanished(cycle, entry, task_id))


def _launch(cycle: Cycle, entry: Entry) -> None:
    """Recorded, but not known to the engine: launch what is missing."""
    if entry.needs_claim and not entry.launched:
        entry.claim_until = cycle.now + plans.CLAIM_SECONDS
        cycle.wake_hub.append(entry.uid)
        return
    entry.launched = True
    cycle.starts.append(entry.uid)


def _stop_again(cycle: Cycle, entry: Entry) -> None:
    grace = entry.workload.spec.grace_seconds
    for index in sorted(entry.places):
        cycle.state.apply(TaskReleasing(entry.uid, index))
        cycle.stops.append(Stop(entry.task_id(index), grace))


def _vanished(cycle: Cycle, entry: Entry, task: TaskId) -> TaskStatus:
    return TaskStatus(
        id=task,
        phase=TaskPhase.ENDED,
        node=entry.places[task.index].node,
        ended_at=cycle.now,
        message="no trace of it was found",
        lost=True,
    )
