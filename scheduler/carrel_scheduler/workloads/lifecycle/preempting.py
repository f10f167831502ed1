"""A workload that holds room stops as a whole so that others may have it, to come again."""

from carrel_scheduler.core.reasons import Reason
from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.lifecycle.spec_changes import release_if_never_launched
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges
from carrel_schema.objects import Preemption, ReasonInfo


def give_way(
    changes: PassChanges,
    entry: CachedWorkload,
    rule: str,
    reason: ReasonInfo,
    taker: Reason | None = None,
) -> None:
    """Tell all its tasks to end, and keep what it lost thereby.

    Args:
        changes: the turn.
        entry: that gives way; nothing more happens to one that is ending already.
        rule: what the preemption is called in the ledger.
        reason: for its owner.
        taker: for whom, where that is known.
    """
    status = entry.workload.status
    saved_at = status.checkpoint.at if status.checkpoint else 0.0
    worked_since = max(saved_at, status.started_at or changes.now)
    status.last_preemption = Preemption(
        at=changes.now,
        rule=rule,
        for_project=taker.project if taker else "",
        for_workload=taker.workload if taker else "",
        for_workload_uid=taker.workload_uid if taker else "",
        lost_seconds=max(0.0, changes.now - worked_since),
        checkpoint_step=status.checkpoint.step if status.checkpoint else None,
    )
    status.preemptions += 1
    changes.give_up_room(entry, entry.workload.spec.grace_seconds, why=reason)
    if status.phase in ("starting", "running"):
        changes.move(entry, "preempting", reason)
        release_if_never_launched(changes, entry)
