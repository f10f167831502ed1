"""Carrying a plan out: bindings become starts, evictions stops."""

from collections.abc import Collection
from typing import Final

from carrel_scheduler.core.events import Outcome, RoomPromised
from carrel_scheduler.core.plan import Binding, Eviction, Plan
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.ledger.objects import Preemption, ReasonInfo
from carrel_scheduler.workloads import gangs, membership, sentences
from carrel_scheduler.workloads.book import Entry, Place
from carrel_scheduler.workloads.cycle import Cycle
from carrel_scheduler.workloads.spec_changes import release_if_never_launched

CLAIM_SECONDS = membership.CLAIM_SECONDS
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
    came: dict[str, list[int]] = {}
    for binding in plan.bindings:
        _bind(cycle, binding, came)
    for uid, parts in came.items():
        entry = cycle.book.get(uid)
        if entry is not None:
            membership.placed(cycle, entry, parts)
    for eviction in plan.evictions:
        _evict(cycle, eviction)
    for nomination in plan.nominations:
        cycle.state.apply(RoomPromised(nomination.uid, nomination.places, nomination.indices))
        entry = cycle.book.get(nomination.uid)
        if entry is not None:
            cycle.decide(entry, "nominate")
    cycle.book.fair_share = dict(plan.fair_share)


def _bind(cycle: Cycle, binding: Binding, came: dict[str, list[int]]) -> None:
    entry = cycle.book.get(binding.uid)
    if entry is None:
        return
    place = Place(binding.node, binding.devices)
    cycle.place(entry, binding.index, place, cycle.now)
    cycle.decide(entry, "bind", place=place)
    came.setdefault(entry.uid, []).append(binding.index)


def _evict(cycle: Cycle, eviction: Eviction) -> None:
    entry = cycle.book.get(eviction.uid)
    if entry is None:
        return
    stays = set(entry.places) - entry.leaving
    parts = stays.intersection(eviction.indices) if eviction.indices else stays
    reason = sentences.from_core(eviction.reason, entry.workload.meta.project)
    cycle.decide(entry, "evict", reason=reason)
    if not entry.holding:
        _give_back_unbegun(cycle, entry, parts)
    elif len(stays) - len(parts) >= gangs.least_parts(entry.workload.spec):
        story = sentences.gives_back(reason, _words(entry, len(parts), len(stays)))
        membership.give_back(cycle, entry, parts, story)
    else:
        _give_way(cycle, entry, eviction, reason)


def _give_back_unbegun(cycle: Cycle, entry: Entry, parts: Collection[int]) -> None:
    """Places of a gang that is not whole yet: nothing runs there."""
    cycle.leave(entry, parts)
    for part in sorted(parts):
        cycle.release(entry, part, Outcome.AGAIN)


def _words(entry: Entry, parts: int, of: int) -> str:
    """What an elastic workload gives back, in a few words."""
    unit = "GPUs" if gangs.resizes(entry.workload.spec) else "workers"
    return f"{parts} of its {of} {unit}"


def _give_way(cycle: Cycle, entry: Entry, eviction: Eviction, reason: ReasonInfo) -> None:
    """It stops as a whole, to come again."""
    status = entry.workload.status
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
    cycle.give_up_room(entry, entry.workload.spec.grace_seconds)
    if status.phase in ("starting", "running"):
        cycle.move(entry, "preempting", reason)
        release_if_never_launched(cycle, entry)
