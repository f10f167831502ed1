"""Carrying a plan out: bindings become starts, evictions stops, reasons the status of waiters."""

import msgspec

from carrel_scheduler.core.events import RoomPromised
from carrel_scheduler.core.plan import Binding, Eviction, Plan
from carrel_scheduler.core.reasons import Reason, Token
from carrel_scheduler.ledger.objects import Preemption, ReasonInfo
from carrel_scheduler.workloads import sentences
from carrel_scheduler.workloads.book import Entry, Place
from carrel_scheduler.workloads.cycle import Cycle
from carrel_scheduler.workloads.spec_changes import release_if_never_launched

CLAIM_SECONDS = 120.0
REASONS_PER_CYCLE = 100


def carry(cycle: Cycle, plan: Plan) -> bool:
    """Put a plan into entries, rows and orders for the engine.

    Returns whether every waiter has its reason now; else another turn is to go on with them.
    """
    for binding in plan.bindings:
        _bind(cycle, binding)
    for eviction in plan.evictions:
        _evict(cycle, eviction)
    for nomination in plan.nominations:
        cycle.state.apply(RoomPromised(nomination.uid, nomination.places))
        entry = cycle.book.get(nomination.uid)
        if entry is not None:
            cycle.decide(entry, "nominate")
    cycle.book.positions = {uid: place for place, uid in enumerate(plan.queue, start=1)}
    cycle.book.fair_share = dict(plan.fair_share)
    return _explain(cycle, plan)


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
        rule="reclaim" if eviction.reason.token is Token.RECLAIMED else "preempt",
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


def _explain(cycle: Cycle, plan: Plan) -> bool:
    """Write the reasons that changed; the first waiters first, a bounded number a turn.

    Returns whether all are written.

    A place in the queue moves with everybody else's, so it is written along with a changed reason
    only; whoever wants it now asks the live view.
    """
    written = 0
    for uid in plan.queue:
        reason = plan.reasons.get(uid)
        entry = cycle.book.get(uid)
        if reason is None or entry is None or entry.workload.status.phase != "pending":
            continue
        record = cycle.state.records.get(uid)  # a view of every waiter would cost a third more
        promised = record is not None and bool(record.promise)
        if _same(entry.workload.status.reason, reason, promised=promised):
            continue
        entry.workload.status.reason = _with_story(entry, reason, promised=promised)
        entry.workload.status.queue_position = cycle.book.positions.get(uid)
        cycle.mark(entry)
        written += 1
        if written >= REASONS_PER_CYCLE:
            return False
    return True


def _with_story(entry: Entry, reason: Reason, *, promised: bool) -> ReasonInfo:
    """The reason with what a waiter wants to know beside it.

    ``nominated``: room is being freed for this very workload, so waiting is worth it.
    ``preempted``: it ran before and gave way.
    """
    said = sentences.from_core(reason, entry.workload.meta.project)
    last = entry.workload.status.last_preemption
    data = {**said.data, "nominated": promised, "preempted": last is not None}
    if last is None:
        return msgspec.structs.replace(said, data=data)
    story = sentences.gave_way(last)
    unnamed = f"{story} {data['sentence_without_names']}"
    return msgspec.structs.replace(
        said,
        sentence=f"{story} {said.sentence}",
        data={**data, "sentence_without_names": unnamed},
    )


def _same(stored: ReasonInfo | None, reason: Reason, *, promised: bool) -> bool:
    """Whether the stored reason says the same: token, amounts, holders."""
    if stored is None or stored.token != reason.token.value:
        return False
    known = stored.data
    holders = [(one.get("uid"), one.get("amount")) for one in known.get("holders", [])]
    return (
        known.get("short") == reason.short
        and known.get("bound") == reason.bound
        and known.get("nominated") == promised
        and known.get("workload_uid", "") == reason.workload_uid
        and holders == [(one.uid, one.amount) for one in reason.holders]
    )
