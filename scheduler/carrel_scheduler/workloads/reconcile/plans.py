"""Carrying a plan out: bindings become starts, evictions stops."""

from collections.abc import Collection
from typing import Final

from carrel_scheduler.core.events import Outcome, RoomPromised
from carrel_scheduler.core.plan import Binding, Eviction, Nomination, Plan
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.workloads.cache import Entry, Place
from carrel_scheduler.workloads.faults.guarding import Handling
from carrel_scheduler.workloads.gangs import membership, shape
from carrel_scheduler.workloads.lifecycle import reasons
from carrel_scheduler.workloads.lifecycle.preempting import give_way
from carrel_scheduler.workloads.reconcile.pass_changes import Cycle

CLAIM_SECONDS = membership.CLAIM_SECONDS
RULES: Final = {
    Token.RECLAIMED: "reclaim",
    Token.PREEMPTED: "preempt",
    Token.CONSOLIDATED: "consolidate",
    Token.GANG_INCOMPLETE: "incomplete",
    Token.NODE_DRAINED: "drain",
}
"""What a preemption is called in the ledger."""


def carry(cycle: Cycle, plan: Plan, handling: Handling) -> None:
    """Put a plan into entries, rows and orders for the engine; ``explaining`` has its reasons."""
    came: dict[str, list[int]] = {}
    for binding in plan.bindings:
        with handling.step(cycle, "decision", binding.uid, binding.uid):
            _bind(cycle, binding, came)
    for uid, parts in came.items():
        entry = cycle.book.get(uid)
        if entry is not None:
            with handling.step(cycle, "decision", uid, uid):
                membership.placed(cycle, entry, parts)
    for eviction in plan.evictions:
        with handling.step(cycle, "decision", eviction.uid, eviction.uid):
            _evict(cycle, eviction)
    for nomination in plan.nominations:
        with handling.step(cycle, "decision", nomination.uid, nomination.uid):
            _nominate(cycle, nomination)
    cycle.book.fair_share = dict(plan.fair_share)


def _nominate(cycle: Cycle, nomination: Nomination) -> None:
    cycle.state.apply(RoomPromised(nomination.uid, nomination.places, nomination.indices))
    entry = cycle.book.get(nomination.uid)
    if entry is not None:
        cycle.decide(entry, "nominate")
    else:
        cycle.guests.nominate(nomination)


def _bind(cycle: Cycle, binding: Binding, came: dict[str, list[int]]) -> None:
    entry = cycle.book.get(binding.uid)
    if entry is None:
        cycle.guests.take(binding)
        return
    place = Place(binding.node, binding.devices)
    cycle.place(entry, binding.index, place, cycle.now)
    cycle.decide(entry, "bind", place=place)
    came.setdefault(entry.uid, []).append(binding.index)


def _evict(cycle: Cycle, eviction: Eviction) -> None:
    entry = cycle.book.get(eviction.uid)
    if entry is None:
        cycle.guests.evict(eviction)
        return
    stays = set(entry.places) - entry.leaving
    parts = stays.intersection(eviction.indices) if eviction.indices else stays
    reason = reasons.from_core(eviction.reason, entry.workload.meta.project)
    cycle.decide(entry, "evict", reason=reason)
    if not entry.holding:
        _give_back_unbegun(cycle, entry, parts)
    elif len(stays) - len(parts) >= shape.least_parts(entry.workload.spec):
        story = reasons.gives_back(reason, _words(entry, len(parts), len(stays)))
        membership.give_back(cycle, entry, parts, story)
    else:
        give_way(cycle, entry, RULES[eviction.reason.token], reason, eviction.reason)


def _give_back_unbegun(cycle: Cycle, entry: Entry, parts: Collection[int]) -> None:
    """Places of a gang that is not whole yet: nothing runs there."""
    cycle.leave(entry, parts)
    for part in sorted(parts):
        cycle.release(entry, part, Outcome.AGAIN)


def _words(entry: Entry, parts: int, of: int) -> str:
    """What an elastic workload gives back, in a few words."""
    unit = "GPUs" if shape.resizes(entry.workload.spec) else "workers"
    return f"{parts} of its {of} {unit}"
