"""Termination of workloads that hold resources (stop, deletion, preemption), and stuck tasks.

Each way ends all its tasks with the grace period (``PassChanges.evict_all``); the engine reports
their ends to ``task_events``, which settles the workload. A task that has not ended in time is
*stuck*: it keeps its allocation, but the core counts on it for nobody any more and searches other
capacity. When the task ends after all, its allocation is free like any other.
"""

import logging

import msgspec

from carrel_scheduler.core.events import TaskStuck
from carrel_scheduler.core.reasons import Reason
from carrel_scheduler.workloads.state import reasons
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_scheduler.workloads.state.phases import AT_REST
from carrel_schema.objects import Phase, Preemption, ReasonInfo, WorkloadStatus

log = logging.getLogger(__name__)


def stop_for(changes: PassChanges, entry: CachedWorkload, reason: ReasonInfo) -> None:
    """Stop a workload by a rule, with a row in the decisions; it may be resumed."""
    changes.decide(entry, "stop", reason=reason)
    stop(changes, entry, reason, entry.workload.spec.grace_seconds)


def delete(changes: PassChanges, entry: CachedWorkload) -> None:
    """End a workload whose object is to be deleted."""
    phase = entry.workload.status.phase
    if phase in AT_REST or phase == "pending":
        changes.dequeue(entry)
        if phase == "pending":
            changes.move(entry, "stopped", reasons.deleted(entry.workload.spec))
        changes.removed.append(entry.uid)
        return
    stop(changes, entry, reasons.deleted(entry.workload.spec), entry.workload.spec.grace_seconds)


def object_gone(changes: PassChanges, entry: CachedWorkload) -> None:
    """Handle an object that was removed by force: end the tasks, then forget the workload."""
    entry.gone = True
    if not entry.workload.spec.delete:
        entry.workload.spec.delete, entry.workload.spec.asked_by = True, ""
        delete(changes, entry)
    elif entry.workload.status.phase in AT_REST and entry.uid not in changes.removed:
        changes.removed.append(entry.uid)


def stop(
    changes: PassChanges, entry: CachedWorkload, reason: ReasonInfo, grace_seconds: float
) -> None:
    """Stop a workload in any phase."""
    phase = entry.workload.status.phase
    if phase == "pending":
        changes.dequeue(entry)
        entry.workload.status.not_before = None
        changes.move(entry, "stopped", reason)
    elif phase in ("starting", "running"):
        changes.evict_all(entry, grace_seconds)
        changes.move(entry, "stopping", reason)
        _release_if_never_launched(changes, entry)
    elif phase == "preempting":
        changes.move(entry, "stopping", reason)


def preempt(
    changes: PassChanges,
    entry: CachedWorkload,
    rule: str,
    reason: ReasonInfo,
    taker: Reason | None = None,
) -> None:
    """End all tasks of a workload for others; it is queued again once they have ended.

    Args:
        changes: of the pass.
        entry: the victim; nothing more happens to one that is ending already.
        rule: what the preemption is called in the ledger.
        reason: for its owner.
        taker: the preemptor, where that is known.
    """
    status = entry.workload.status
    status.last_preemption = Preemption(
        at=changes.now,
        rule=rule,
        for_project=taker.project if taker else "",
        for_workload=taker.workload if taker else "",
        for_workload_uid=taker.workload_uid if taker else "",
        lost_seconds=_unsaved_seconds(status, changes.now),
        checkpoint_step=status.checkpoint.step if status.checkpoint else None,
    )
    status.preemptions += 1
    changes.evict_all(entry, entry.workload.spec.grace_seconds, why=reason)
    if status.phase in ("starting", "running"):
        changes.move(entry, "preempting", reason)
        _release_if_never_launched(changes, entry)


def count_loss(entry: CachedWorkload, ended_at: float, *, done: bool) -> None:
    """Write down what a preemption cost in the end: its tasks may have saved their work since.

    Args:
        entry: whose tasks have ended, preempted at some time; not in this attempt: left alone.
        ended_at: when the last of them ended, in epoch seconds.
        done: the work was done in spite of it, so nothing is lost.
    """
    status = entry.workload.status
    last = status.last_preemption
    if last is None or last.at < (status.started_at or 0.0):
        return
    status.last_preemption = msgspec.structs.replace(
        last,
        lost_seconds=0.0 if done else _unsaved_seconds(status, ended_at),
        checkpoint_step=status.checkpoint.step if status.checkpoint else None,
    )


def _unsaved_seconds(status: WorkloadStatus, now: float) -> float:
    """The seconds of work since the start or the last checkpoint."""
    saved_at = status.checkpoint.at if status.checkpoint else 0.0
    return max(0.0, now - max(saved_at, status.started_at or now))


def _release_if_never_launched(changes: PassChanges, entry: CachedWorkload) -> None:
    """Free an allocation that was held for a claim: no task of it was ever started."""
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


def mark_stuck(changes: PassChanges, entry: CachedWorkload) -> None:
    """Report parts that have not ended in time to the core as stuck."""
    if entry.gone_by is None or entry.gone_by > changes.now:
        return
    entry.gone_by = None
    for part in sorted(entry.leaving):
        changes.state.apply(TaskStuck(entry.uid, part))
    if entry.leaving:
        name, grace = entry.workload.meta.name, entry.workload.spec.grace_seconds
        log.warning("%s has not ended after its grace period of %g s", name, grace)
