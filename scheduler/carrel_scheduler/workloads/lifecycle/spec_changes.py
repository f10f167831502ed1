"""What follows from a changed specification: submitted, suspended, resumed, deleted."""

from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.lifecycle import reasons, termination
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges
from carrel_schema.objects import Workload


def take_in(changes: PassChanges, workload: Workload) -> CachedWorkload:
    """Add a new workload to the cache and queue it, unless it is suspended."""
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
        termination.delete(changes, entry)
    elif spec.suspend:
        termination.stop(changes, entry, reasons.suspended(spec), spec.grace_seconds)
    elif status.phase == "stopped" and spec.resumes > status.observed_resumes:
        _resume(changes, entry)


def _resume(changes: PassChanges, entry: CachedWorkload) -> None:
    status = entry.workload.status
    status.observed_resumes = entry.workload.spec.resumes
    status.failures = status.losses = 0
    status.ended_at = None
    status.not_before = None
    changes.move(entry, "pending")
    changes.enqueue(entry)
