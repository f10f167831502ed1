"""Putting a plan into a pass: bindings become starts, evictions stops, nominations reservations."""

from collections.abc import Collection
from typing import Final

from carrel_scheduler.core.events import CapacityReserved, Outcome
from carrel_scheduler.core.plan import Binding, Eviction, Nomination, Plan
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.workloads.cache import CachedWorkload, Place
from carrel_scheduler.workloads.faults.guarding import GuardedSteps
from carrel_scheduler.workloads.gangs import membership, shape
from carrel_scheduler.workloads.lifecycle import reasons
from carrel_scheduler.workloads.lifecycle.termination import preempt
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges

RULES: Final = {
    Token.RECLAIMED: "reclaim",
    Token.PREEMPTED: "preempt",
    Token.CONSOLIDATED: "consolidate",
    Token.GANG_INCOMPLETE: "incomplete",
    Token.NODE_DRAINED: "drain",
}
"""What a preemption is called in the ledger."""


def put_into(changes: PassChanges, plan: Plan, steps: GuardedSteps) -> None:
    """Put a plan into entries, rows and orders for the engine; ``explaining`` has its reasons."""
    came: dict[str, list[int]] = {}
    for binding in plan.bindings:
        with steps.step(changes, "decision", binding.uid, binding.uid):
            _bind(changes, binding, came)
    for uid, parts in came.items():
        entry = changes.cache.get(uid)
        if entry is not None:
            with steps.step(changes, "decision", uid, uid):
                membership.placed(changes, entry, parts)
    for eviction in plan.evictions:
        with steps.step(changes, "decision", eviction.uid, eviction.uid):
            _evict(changes, eviction)
    for nomination in plan.nominations:
        with steps.step(changes, "decision", nomination.uid, nomination.uid):
            _nominate(changes, nomination)
    changes.cache.fair_share = dict(plan.fair_share)


def _nominate(changes: PassChanges, nomination: Nomination) -> None:
    changes.state.apply(CapacityReserved(nomination.uid, nomination.places, nomination.indices))
    entry = changes.cache.get(nomination.uid)
    if entry is not None:
        changes.decide(entry, "nominate")
    else:
        changes.external_pods.nominate(nomination)


def _bind(changes: PassChanges, binding: Binding, came: dict[str, list[int]]) -> None:
    entry = changes.cache.get(binding.uid)
    if entry is None:
        changes.external_pods.place(binding)
        return
    place = Place(binding.node, binding.devices)
    changes.place(entry, binding.index, place, changes.now)
    changes.decide(entry, "bind", place=place)
    came.setdefault(entry.uid, []).append(binding.index)


def _evict(changes: PassChanges, eviction: Eviction) -> None:
    entry = changes.cache.get(eviction.uid)
    if entry is None:
        changes.external_pods.evict(eviction)
        return
    stays = set(entry.places) - entry.leaving
    parts = stays.intersection(eviction.indices) if eviction.indices else stays
    reason = reasons.from_core(eviction.reason, entry.workload.meta.project)
    changes.decide(entry, "evict", reason=reason)
    if not entry.holding:
        _give_back_unbegun(changes, entry, parts)
    elif len(stays) - len(parts) >= shape.least_parts(entry.workload.spec):
        story = reasons.gives_back(reason, _words(entry, len(parts), len(stays)))
        membership.give_back(changes, entry, parts, story)
    else:
        preempt(changes, entry, RULES[eviction.reason.token], reason, eviction.reason)


def _give_back_unbegun(changes: PassChanges, entry: CachedWorkload, parts: Collection[int]) -> None:
    """Places of a gang that is not whole yet: nothing runs there."""
    changes.leave(entry, parts)
    for part in sorted(parts):
        changes.release(entry, part, Outcome.AGAIN)


def _words(entry: CachedWorkload, parts: int, of: int) -> str:
    """What an elastic workload gives back, in a few words."""
    unit = "GPUs" if shape.resizes(entry.workload.spec) else "workers"
    return f"{parts} of its {of} {unit}"
