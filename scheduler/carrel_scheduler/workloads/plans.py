"""Carrying a plan out: bindings become starts, evictions stops."""

from typing import Final

from carrel_scheduler.core.events import RoomPromised
from carrel_scheduler.core.plan import Binding, Eviction, Plan
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.ledger.objects import Preemption
from carrel_scheduler.workloads import sentences
from carrel_scheduler.workloads.book import Place
from carrel_scheduler.workloads.cycle import Cycle
from carrel_scheduler.workloads.spec_changes import release_if_never_launched

CLAIM_SECONDS = 120.0
RULES: Final = {
    Token.RECLAIMED: "reclaim",
    Token.PREEMPTED: "preempt",
    Token.CONSOLIDATED: "consolidate",
    Token.GANG_INCOMPLETE: "incomplete",
    Token.NODE_DRAINED: "drain",
}
"""What a preemption is called in the ledger."""


def carry(cycle: Cycle, plan: Plan) -> None:
    """Put a plan into entries, rows and orders for the engine; ``explaining`` has its reasons."""
    for binding in plan.bindings:
        _bind(cycle, binding)
    for eviction in plan.evictions:
        _evict(cycle, eviction)
    for nomination in plan.nominations:
        cycle.state.apply(RoomPromised(nomination.uid, nomination.places, nomination.indices))
        entry = cycle.book.get(nomination.uid)
        if entry is not None:
            cycle.decide(entry, "nominate")
    cycle.book.fair_share = dict(plan.fair_share)


def _bind(cycle: Cycle, binding: Binding) -> None:
    entry = cycle.book.get(binding.uid)
    if entry is None:
        return
    place = Place(binding.node, binding.devices)
    cycle.place(entry, binding.index, place, cycle.now)
    cycle.decide(entry, "bind", place=place)
    if len(entry.places) < entry.workload.spec.tasks:
        return
    entry.workload.status.queue_position = None
    cycle.show_tasks(entry)
    cycle.move(entry, "starting")
    if entry.needs_claim:
        entry.claim_until = cycle.now + CLAIM_SECONDS
        cycle.wake_hub.append(entry.uid)
    else:
        entry.launched = True
        cycle.starts.append(entry.uid)


def _evict(cycle: Cycle, eviction: Eviction) -> None:
    entry = cycle.book.get(eviction.uid)
    if entry is None:
        return
    status, meta = entry.workload.status, entry.workload.meta
    reason = sentences.from_core(eviction.reason, meta.project)
    saved_at = status.checkpoint.at if status.checkpoint else 0.0
    worked_since = max(saved_at, status.started_at or cycle.now)
    status.last_preemption = Preemption(
        at=cycle.now,
        rule=RULES[eviction.reason.token],
        for_project=eviction.reason.project,
        for_workload=eviction.reason.workload,
        for_workload_uid=eviction.reason.workload_uid,
        lost_seconds=max(0.0, cycle.now - worked_since),
        checkpoint_step=status.checkpoint.step if status.checkpoint else None,
    )
    status.preemptions += 1
    cycle.decide(entry, "evict", reason=reason)
    cycle.give_up_room(entry, entry.workload.spec.grace_seconds)
    cycle.move(entry, "preempting", reason)
    release_if_never_launched(cycle, entry)
