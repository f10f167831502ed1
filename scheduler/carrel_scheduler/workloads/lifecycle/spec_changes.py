"""What follows from a changed specification: submitted, suspended, resumed, deleted."""

from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.lifecycle import reasons
from carrel_scheduler.workloads.lifecycle.phases import AT_REST
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges
from carrel_schema.objects import Phase, ReasonInfo, Workload


def take_in(changes: PassChanges, workload: Workload) -> CachedWorkload:
    """A workload that the cache does not have yet: queue it unless it is to rest."""
    entry = changes.cache.add(workload)
    workload.status.observed_generation = workload.meta.generation
    if workload.status.phase == "pending" and not asks_for_end(workload):
        changes.enqueue(entry)
    return entry


def asks_for_end(workload: Workload) -> bool:
    """Whether its owner wants it stopped or gone."""
    return workload.spec.suspend or workload.spec.delete


def waits_for_room(workload: Workload) -> bool:
    """Whether it is to run now, and does not yet."""
    wants = workload.status.phase == "pending" and not asks_for_end(workload)
    return wants and workload.status.not_before is None


def waits_for_project(entry: CachedWorkload) -> bool:
    """Whether it wants to run and is not in the core's queue: its project was not known."""
    return waits_for_room(entry.workload) and not entry.queued


def follow(changes: PassChanges, entry: CachedWorkload) -> None:
    """Bring a workload to where its specification wants it."""
    workload = entry.workload
    status, spec = workload.status, workload.spec
    if status.observed_generation != workload.meta.generation:
        status.observed_generation = workload.meta.generation
        changes.mark(entry)
    if spec.delete:
        _delete(changes, entry)
    elif spec.suspend:
        _stop(changes, entry, reasons.suspended(spec), spec.grace_seconds)
    elif status.phase == "stopped" and spec.resumes > status.observed_resumes:
        _resume(changes, entry)


def vanished(changes: PassChanges, entry: CachedWorkload) -> None:
    """Its object is not there any more: its tasks are ended, and then it is forgotten."""
    entry.gone = True
    if not entry.workload.spec.delete:
        entry.workload.spec.delete, entry.workload.spec.asked_by = True, ""
        _delete(changes, entry)
    elif entry.workload.status.phase in AT_REST and entry.uid not in changes.removed:
        changes.removed.append(entry.uid)


def stop_for(changes: PassChanges, entry: CachedWorkload, reason: ReasonInfo) -> None:
    """Stop a running workload for a reason of its project's rules; it may be resumed."""
    changes.decide(entry, "stop", reason=reason)
    _stop(changes, entry, reason, entry.workload.spec.grace_seconds)


def _delete(changes: PassChanges, entry: CachedWorkload) -> None:
    phase = entry.workload.status.phase
    if phase in AT_REST or phase == "pending":
        changes.dequeue(entry)
        if phase == "pending":
            changes.move(entry, "stopped", reasons.deleted(entry.workload.spec))
        changes.removed.append(entry.uid)
        return
    _stop(changes, entry, reasons.deleted(entry.workload.spec), entry.workload.spec.grace_seconds)


def _stop(
    changes: PassChanges, entry: CachedWorkload, reason: ReasonInfo, grace_seconds: float
) -> None:
    phase = entry.workload.status.phase
    if phase == "pending":
        changes.dequeue(entry)
        entry.workload.status.not_before = None
        changes.move(entry, "stopped", reason)
    elif phase in ("starting", "running"):
        changes.give_up_room(entry, grace_seconds)
        changes.move(entry, "stopping", reason)
        release_if_never_launched(changes, entry)
    elif phase == "preempting":
        changes.move(entry, "stopping", reason)


def release_if_never_launched(changes: PassChanges, entry: CachedWorkload) -> None:
    """A place held for a claim has no process: its room is free at once."""
    if entry.launched:
        return
    changes.stops = [stop for stop in changes.stops if stop.task.workload_uid != entry.uid]
    for info in entry.workload.status.tasks:
        changes.ports.let_go(entry.task_id(info.index))
    entry.workload.status.tasks = []
    rest: Phase = "stopped" if entry.workload.status.phase == "stopping" else "pending"
    reason = entry.workload.status.reason
    changes.release_all(entry, waits=rest == "pending")
    entry.workload.status.attempt += 1
    changes.move(entry, rest, reason)
    if rest == "pending":
        changes.enqueue(entry)
    elif entry.workload.spec.delete:
        changes.removed.append(entry.uid)


def _resume(changes: PassChanges, entry: CachedWorkload) -> None:
    status = entry.workload.status
    status.observed_resumes = entry.workload.spec.resumes
    status.failures = status.losses = 0
    status.ended_at = None
    status.not_before = None
    changes.move(entry, "pending")
    changes.enqueue(entry)
