"""Taking a workload over that a scheduler before this one, or this one, had recorded.

Whoever held resources in the ledger either has a process (adopted), has ended (settled now), or was
recorded but never launched (launched now; the engine refuses a second start of the same task id, so
nothing runs twice).

A workload whose handling failed is rebuilt the same way: what the ledger recorded and the engine
lists is the truth, and what was in memory is dropped. Where even that fails, the workload is left
out: its tasks are ended, and their devices are withheld from everybody until the engine reports
their ends. A change of the object brings it back.
"""

import logging
from collections.abc import Collection, Sequence

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.engines.core_state import keep_node, purge
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.faults import deleted_projects
from carrel_scheduler.workloads.faults.guarding import Savepoint
from carrel_scheduler.workloads.gangs import membership
from carrel_scheduler.workloads.lifecycle import session_limits, task_events
from carrel_scheduler.workloads.nodes.devices import WithheldDevices
from carrel_scheduler.workloads.reconcile import deciding, handlers
from carrel_scheduler.workloads.reconcile.executor import NO_TRACE
from carrel_scheduler.workloads.state import failure_reasons, reasons, shape
from carrel_scheduler.workloads.state.cache import CLAIM_SECONDS, CachedWorkload, Place
from carrel_scheduler.workloads.state.pass_changes import PassChanges, Stop
from carrel_scheduler.workloads.state.phases import FINAL
from carrel_schema.objects import TaskInfo, Workload

log = logging.getLogger(__name__)


def rebuild(
    changes: PassChanges,
    uid: str,
    workload: Workload | None,
    tasks: Sequence[TaskStatus],
    quarantine: Quarantine,
    withheld: WithheldDevices,
) -> None:
    """Drop a workload and adopt it again.

    Args:
        changes: of a pass of its own.
        uid: of the workload.
        workload: as recorded; ``None`` where it is gone.
        tasks: that the engine lists of it.
        quarantine: where it stays if that fails.
        withheld: keeps the devices of its tasks from others then.
    """
    purge(changes.state, uid)
    changes.cache.drop(uid)
    before = Savepoint(changes)
    with quarantine.guard("workload", uid) as guard:
        if workload is not None and (workload.status.phase not in FINAL or workload.spec.delete):
            _take_over(changes, workload, tasks)
    if guard.failed:
        before.restore()
        purge(changes.state, uid)
        changes.cache.drop(uid)
    if changes.cache.get(uid) is not None:
        log.warning("workload %s was rebuilt after a failure", uid)
        quarantine.release("task", uid)
        quarantine.release("message", uid)
        return
    for task in tasks:
        if task.phase is TaskPhase.ENDED:
            changes.forgets.append(task.id)
        else:
            withheld.keep(task, changes.state)
            changes.stops.append(Stop(task.id, 0.0))


def _take_over(changes: PassChanges, workload: Workload, tasks: Collection[TaskStatus]) -> None:
    """Adopt one workload; ``tasks`` are those of it that the engine lists."""
    seen = {task.id: task for task in tasks}
    entry = take(changes, workload, seen)
    # The member that ended first, while the scheduler was away, caused the end of the others.
    for task in sorted(tasks, key=lambda one: one.ended_at or changes.now):
        task_events.on_task(changes, task)
    follow(changes, entry)


def take(changes: PassChanges, workload: Workload, seen: Collection[TaskId]) -> CachedWorkload:
    """Put it into the cache and the core as it was recorded; ``seen``: what the engine lists."""
    entry = changes.cache.add(workload)
    status = workload.status
    deciding.limit_pause(entry, changes.now)
    if entry.holding:
        _adopt(changes, entry, seen)
    elif handlers.wants_resources(workload):
        changes.enqueue(entry)
    if status.phase == "running":
        session_limits.take_over(entry, changes.now)
        changes.wakes.append((changes.now, entry.uid))
    return entry


def follow(changes: PassChanges, entry: CachedWorkload) -> None:
    """Follow its specification, now that the engine has reported its tasks."""
    handlers.follow_specification(changes, entry)
    for when in (entry.workload.status.not_before, entry.claim_until, entry.meet_until):
        if when is not None:
            changes.wakes.append((when, entry.uid))


def _adopt(changes: PassChanges, entry: CachedWorkload, seen: Collection[TaskId]) -> None:
    status = entry.workload.status
    _take_over_places(changes, entry)
    for info in status.tasks:
        if info.place == "done" or (info.place == "held" and info.ended_at is not None):
            entry.ended[info.index] = _as_recorded(entry, info)
    present = set(entry.tasks) - entry.ended.keys()
    known = {index for index in present if entry.task_id(index) in seen}
    entry.launched = bool(known or entry.ended)
    entry.alive.update(known)
    broken = status.reason is not None and status.reason.token == failure_reasons.GANG_LOST
    entry.ending = broken or (shape.is_mpi(entry.workload.spec) and 0 in entry.ended)
    if 0 in known and shape.resizes(entry.workload.spec):
        entry.resizing = status.reason is not None and status.reason.token in reasons.RESIZING
    if status.phase in ("preempting", "stopping") or entry.ending:
        changes.evict_all(entry, entry.workload.spec.grace_seconds)
    else:
        _stop_the_leaving(changes, entry)
        _launch(changes, entry, {i for i in present - known if _was_not_started(entry, i)})
    if entry.claim_until is None:
        gone = [_vanished(changes, entry, index) for index in sorted(present - entry.alive)]
        entry.alive.update(task.id.index for task in gone)
        for task in gone:
            task_events.on_task(changes, task)
    if status.phase == "running" and shape.meets(entry.workload.spec):
        membership.expect_all(changes, entry)


def _take_over_places(changes: PassChanges, entry: CachedWorkload) -> None:
    """Tell the core what the workload holds, and which of it is being given back."""
    status, spec = entry.workload.status, entry.workload.spec
    entry.attempts = {info.index: info.attempt for info in status.tasks}
    deleted_projects.keep_queue(changes, entry)
    changes.enqueue(entry, done=[info.index for info in status.tasks if info.place == "done"])
    since = status.started_at if status.started_at is not None else changes.now
    leaving: list[int] = []
    for info in status.tasks:
        if info.place not in ("held", "leaving"):
            continue
        keep_node(changes.state, info.node, info.devices)
        if not shape.resizes(spec):
            place = Place(info.node, info.devices, info.mig_slots)
            changes.place(entry, info.index, place, since)
            leaving += [info.index] if info.place == "leaving" else []
            continue
        for part, device in enumerate(info.devices):
            changes.place(entry, part, Place(info.node, (device,)), since)
            leaving += [part] if device in info.returns else []
    changes.leave(entry, leaving)


def _was_not_started(entry: CachedWorkload, index: int) -> bool:
    """Whether a recorded task never reached the engine."""
    if entry.workload.status.phase == "starting":
        return index not in entry.leaving
    info = next(one for one in entry.workload.status.tasks if one.index == index)
    return info.started_at is None and index not in entry.leaving


def _launch(changes: PassChanges, entry: CachedWorkload, missing: set[int]) -> None:
    """Launch the recorded tasks that the engine does not know."""
    if not missing:
        return
    if entry.needs_claim and not entry.launched:
        entry.claim_until = changes.now + CLAIM_SECONDS
        changes.wake_hub.append(entry.uid)
        return
    changes.start(entry, sorted(missing))


def _stop_the_leaving(changes: PassChanges, entry: CachedWorkload) -> None:
    """Repeat stop orders that may not have reached the engine."""
    grace = entry.workload.spec.grace_seconds
    for index in sorted(entry.alive):
        if entry.resizing or (index in entry.leaving and not shape.resizes(entry.workload.spec)):
            changes.stop(entry, index, grace)


def _as_recorded(entry: CachedWorkload, info: TaskInfo) -> TaskStatus:
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
        loss=info.loss,
        devices=info.devices,
    )


def _vanished(changes: PassChanges, entry: CachedWorkload, index: int) -> TaskStatus:
    return TaskStatus(
        id=entry.task_id(index),
        phase=TaskPhase.ENDED,
        node=entry.tasks[index].node,
        ended_at=changes.now,
        message=NO_TRACE,
        lost=True,
    )
