"""Starting up: read the ledger, ask the engine, and bring the two together.

Whoever held resources in the ledger either has a process (adopted), has ended (settled now), or was
recorded but never launched (launched now; the engine refuses a second start of the same task id, so
nothing runs twice). Processes that no live workload owns are ended.
"""

import logging
from collections.abc import Sequence

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.ledger.kinds import COMPOSITES
from carrel_scheduler.ledger.objects import Department, Project, TaskInfo, Workload
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.workloads import (
    gangs,
    meeting,
    membership,
    missing_nodes,
    sentences,
    set_back,
    spec_changes,
    task_changes,
    tenure,
)
from carrel_scheduler.workloads.actor import NO_TRACE
from carrel_scheduler.workloads.book import Entry, Place
from carrel_scheduler.workloads.cycle import Cycle
from carrel_scheduler.workloads.lifecycle import FINAL
from carrel_scheduler.workloads.messages import DepartmentChanged, DevicesSampled, ProjectChanged
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
        The versions from which projects (departments with them) and workloads are to be watched.
    """
    loop.epoch = loop.composites.epoch = await loop.ledger.begin_epoch()
    for node in facts:
        loop.tell(DevicesSampled(node, ()))
    projects = await loop.ledger.list(Project)
    for project in projects.items:
        loop.tell(ProjectChanged(Change(ChangeType.ADDED, projects.version, project)))
    # Listed after the projects: hearing again of what changed in between does no harm.
    departments = await loop.ledger.list(Department)
    for department in departments.items:
        loop.tell(DepartmentChanged(Change(ChangeType.ADDED, departments.version, department)))
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
    # Of members that ended while nobody looked, the first to end is the one that took the others.
    for task in sorted(tasks, key=lambda one: one.ended_at or cycle.now):
        task_changes.on_task(cycle, task)
    for entry in tuple(loop.book):
        spec_changes.follow(cycle, entry)
        _set_timers(loop, entry)
    await loop.finish(cycle)
    log.info("recovered %d workloads and %d tasks", len(tuple(loop.book)), len(tasks))
    return projects.version, workloads.version


def _take(
    loop: Reconciler, cycle: Cycle, workload: Workload, seen: dict[TaskId, TaskStatus]
) -> None:
    entry = loop.book.add(workload)
    status = workload.status
    set_back.not_later(entry, cycle.now)
    if entry.holding:
        _adopt(cycle, entry, seen)
    elif spec_changes.waits_for_room(workload):
        cycle.enqueue(entry)
    if status.phase == "running":
        tenure.take_over(entry, cycle.now)
        loop.wake_at(cycle.now, entry.uid)


def _set_timers(loop: Reconciler, entry: Entry) -> None:
    times = (entry.workload.status.not_before, entry.claim_until, entry.meet_until)
    for when in times:
        if when is not None:
            loop.wake_at(when, entry.uid)


def _adopt(cycle: Cycle, entry: Entry, seen: dict[TaskId, TaskStatus]) -> None:
    status = entry.workload.status
    _take_over_places(cycle, entry)
    for info in status.tasks:
        if info.place == "done" or (info.place == "held" and info.ended_at is not None):
            entry.ended[info.index] = _as_recorded(entry, info)
    present = set(entry.tasks) - entry.ended.keys()
    known = {index for index in present if entry.task_id(index) in seen}
    entry.launched = bool(known or entry.ended)
    entry.alive.update(known)
    broken = status.reason is not None and status.reason.token == sentences.GANG_LOST
    entry.ending = broken or (gangs.is_mpi(entry.workload.spec) and 0 in entry.ended)
    if 0 in known and gangs.resizes(entry.workload.spec):
        entry.resizing = status.reason is not None and status.reason.token in sentences.RESIZING
    if status.phase in ("preempting", "stopping") or entry.ending:
        cycle.give_up_room(entry, entry.workload.spec.grace_seconds)
    else:
        _stop_the_leaving(cycle, entry)
        _launch(cycle, entry, {i for i in present - known if _was_not_started(entry, i)})
    if entry.claim_until is None:
        gone = [_vanished(cycle, entry, index) for index in sorted(present - entry.alive)]
        entry.alive.update(task.id.index for task in gone)
        for task in gone:
            task_changes.on_task(cycle, task)
    if status.phase == "running":
        meeting.expect_all(cycle, entry)


def _take_over_places(cycle: Cycle, entry: Entry) -> None:
    """Tell the core what the workload holds, and which of it is being given back."""
    status, spec = entry.workload.status, entry.workload.spec
    entry.attempts = {info.index: info.attempt for info in status.tasks}
    cycle.enqueue(entry, done=[info.index for info in status.tasks if info.place == "done"])
    since = status.started_at if status.started_at is not None else cycle.now
    leaving: list[int] = []
    for info in status.tasks:
        if info.place not in ("held", "leaving"):
            continue
        missing_nodes.keep(cycle.state, info.node, info.devices)
        if not gangs.resizes(spec):
            cycle.place(entry, info.index, Place(info.node, info.devices), since)
            leaving += [info.index] if info.place == "leaving" else []
            continue
        for part, device in enumerate(info.devices):
            cycle.place(entry, part, Place(info.node, (device,)), since)
            leaving += [part] if device in info.returns else []
    cycle.leave(entry, leaving)


def _was_not_started(entry: Entry, index: int) -> bool:
    """Whether the engine never heard of a task that was recorded."""
    if entry.workload.status.phase == "starting":
        return index not in entry.leaving
    info = next(one for one in entry.workload.status.tasks if one.index == index)
    return info.started_at is None and index not in entry.leaving


def _launch(cycle: Cycle, entry: Entry, missing: set[int]) -> None:
    """Recorded, but not known to the engine: launch what is missing."""
    if not missing:
        return
    if entry.needs_claim and not entry.launched:
        entry.claim_until = cycle.now + membership.CLAIM_SECONDS
        cycle.wake_hub.append(entry.uid)
        return
    cycle.start(entry, sorted(missing))


def _stop_the_leaving(cycle: Cycle, entry: Entry) -> None:
    """Order again what may not have reached the engine."""
    grace = entry.workload.spec.grace_seconds
    for index in sorted(entry.alive):
        if entry.resizing or (index in entry.leaving and not gangs.resizes(entry.workload.spec)):
            cycle.stop(entry, index, grace)


def _as_recorded(entry: Entry, info: TaskInfo) -> TaskStatus:
    return TaskStatus(
        id=TaskId(entry.uid, info.index, info.attempt),
        phase=TaskPhase.ENDED,
        node=info.node,
        started_at=info.started_at or 0.0,
        ended_at=info.ended_at or 0.0,
        exit_code=info.exit_code,
        signal=info.signal,
        message=info.message,
        lost=info.lost,
        devices=info.devices,
    )


def _vanished(cycle: Cycle, entry: Entry, index: int) -> TaskStatus:
    return TaskStatus(
        id=entry.task_id(index),
        phase=TaskPhase.ENDED,
        node=entry.tasks[index].node,
        ended_at=cycle.now,
        message=NO_TRACE,
        lost=True,
    )
