"""Putting a plan into a pass: starts, evictions and reservations, and why the others wait.

Bindings become starts, evictions stops, nominations reservations. Reasons are written a slice at a
time: in a busy cluster those of thousands change with every plan, and writing them all would leave
no time for anything else. So a slice is bounded in what it compares and in what it writes, goes on
where the last one stopped, and is followed by a pause many times as long as it took. Workloads
without any reason come before those whose reason has changed. A short queue fits into one slice.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

import msgspec

from carrel_scheduler.core.events import CapacityReserved, Outcome
from carrel_scheduler.core.plan import Binding, Eviction, Nomination, Plan
from carrel_scheduler.core.reasons import Reason, Token
from carrel_scheduler.engines.external import WAITS_FOR_NODES, NodeRequestNote
from carrel_scheduler.workloads.faults.guarding import GuardedSteps
from carrel_scheduler.workloads.gangs import membership
from carrel_scheduler.workloads.lifecycle.termination import preempt
from carrel_scheduler.workloads.reconcile.deciding import Pacing
from carrel_scheduler.workloads.state import reasons, shape
from carrel_scheduler.workloads.state.cache import CLAIM_SECONDS, CachedWorkload, Place
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_schema.objects import ReasonInfo, WorkloadStatus

RULES: Final = {
    Token.RECLAIMED: "reclaim",
    Token.PREEMPTED: "preempt",
    Token.CONSOLIDATED: "consolidate",
    Token.GANG_INCOMPLETE: "incomplete",
    Token.NODE_DRAINED: "drain",
    Token.IMPROVED: "improve",
}
"""The names of preemption kinds in the ledger."""


def put_into(changes: PassChanges, plan: Plan, steps: GuardedSteps) -> None:
    """Put a plan into entries, rows and orders for the engine; ``explaining`` has its reasons."""
    placed: dict[str, list[int]] = {}
    for binding in plan.bindings:
        with steps.step(changes, "decision", binding.uid, binding.uid):
            _bind(changes, binding, placed)
    for uid, parts in placed.items():
        entry = changes.cache.get(uid)
        if entry is not None:
            with steps.step(changes, "decision", uid, uid):
                _place(changes, entry, parts)
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


def _bind(changes: PassChanges, binding: Binding, placed: dict[str, list[int]]) -> None:
    entry = changes.cache.get(binding.uid)
    if entry is None:
        changes.external_pods.place(binding)
        return
    place = Place(binding.node, binding.devices, binding.slots)
    changes.place(entry, binding.index, place, changes.now)
    changes.decide(entry, "bind", place=place)
    placed.setdefault(entry.uid, []).append(binding.index)


def _place(changes: PassChanges, entry: CachedWorkload, parts: Collection[int]) -> None:
    """Begin a workload with the parts that have places now, or have it grow by them."""
    if entry.holding:
        membership.grow(changes, entry, parts)
    elif len(entry.places) >= shape.least_parts(entry.workload.spec):
        _begin(changes, entry)


def _begin(changes: PassChanges, entry: CachedWorkload) -> None:
    entry.workload.status.queue_position = None
    changes.show_tasks(entry)
    changes.move(entry, "starting")
    if entry.needs_claim:
        entry.claim_until = changes.now + CLAIM_SECONDS
        changes.wake_hub.append(entry.uid)
    else:
        changes.start(entry, entry.tasks)


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
        history = reasons.gives_back(reason, _words(entry, len(parts), len(stays)))
        membership.give_back(changes, entry, parts, history)
    else:
        preempt(changes, entry, RULES[eviction.reason.token], reason, eviction.reason)


def _give_back_unbegun(changes: PassChanges, entry: CachedWorkload, parts: Collection[int]) -> None:
    """Release places of a gang that is not complete yet: nothing runs there."""
    changes.leave(entry, parts)
    for part in sorted(parts):
        changes.release(entry, part, Outcome.AGAIN)


def _words(entry: CachedWorkload, parts: int, of: int) -> str:
    """The parts that an elastic workload releases, as a phrase."""
    unit = "GPUs" if shape.resizes(entry.workload.spec) else "workers"
    return f"{parts} of its {of} {unit}"


WRITTEN_AT_ONCE: Final = 100
SEEN_AT_ONCE: Final = 2_000
REST: Final = 9.0


class ExplainedPlan(Protocol):
    """The part of a plan from which reasons are written."""

    @property
    def queue(self) -> Sequence[str]:
        """The uids of all pending workloads, in order."""
        ...

    @property
    def reasons(self) -> Mapping[str, Reason]:
        """The reason of each."""
        ...


class Explaining:
    """Writes reasons of pending workloads into their status.

    Args:
        clock: of the pacing.
        look: what would be decided now, on the state as it is: reasons speak of the present.
    """

    def __init__(self, clock: Callable[[], float], look: Callable[[], ExplainedPlan]) -> None:
        self.pacing = Pacing(clock, REST)
        self._look = look
        self._next = self._unseen = 0
        self._arrived: list[str] = []
        self._first: dict[str, None] = {}

    @property
    def pending(self) -> bool:
        """Whether some have not been compared since the latest plan."""
        return self._unseen > 0 or bool(self._first)

    @property
    def due_at(self) -> float | None:
        """The time at which the next postponed slice is due; ``None`` where nothing is left."""
        return self.pacing.due_at if self.pending else None

    def queued(self, uids: Iterable[str]) -> None:
        """Record pending workloads without a reason; the next plan gives them one."""
        self._arrived += uids

    def decided(self, waiting: int) -> None:
        """The core has decided: the reasons of so many pending workloads are to be compared."""
        self._unseen = waiting
        self._first |= dict.fromkeys(self._arrived)
        self._arrived.clear()

    def slice(self, changes: PassChanges) -> None:
        """Write the next part of the reasons that are new or have changed."""
        written, plan = 0, self._look()
        changes.cache.refresh_positions()
        for uid, place in self._coming(plan.queue):
            written += _write_reason(changes, plan, uid, place)
            if written >= WRITTEN_AT_ONCE:
                return

    def _coming(self, queue: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """The uids whose reasons to compare, with their place in the queue where it is known."""
        for uid in list(islice(self._first, SEEN_AT_ONCE)):
            del self._first[uid]
            yield uid, None
        self._unseen = min(self._unseen, len(queue))
        for _ in range(min(self._unseen, SEEN_AT_ONCE)):
            place = self._next % len(queue)
            self._next = place + 1
            self._unseen -= 1
            yield queue[place], self._next


def _write_reason(changes: PassChanges, plan: ExplainedPlan, uid: str, place: int | None) -> int:
    """Write a changed reason into the status; returns how many were written.

    A place in the queue moves with everybody else's, so it is written along with a changed reason
    only; whoever reads the status is given the present one.
    """
    reason, entry = plan.reasons.get(uid), changes.cache.get(uid)
    if reason is not None and entry is None:
        return int(changes.external_pods.explain(uid, reason))
    if reason is None or entry is None or entry.workload.status.phase != "pending":
        return 0
    reserved = uid in changes.state.reserved
    note = changes.external_pods.nodes_for(uid, reason)
    if _same(entry.workload.status, reason, note, reserved=reserved):
        return 0
    entry.workload.status.reason = _with_history(entry, reason, note, reserved=reserved)
    entry.workload.status.queue_position = place or changes.cache.positions.get(uid)
    changes.mark(entry)
    return 1


def _with_history(
    entry: CachedWorkload, reason: Reason, note: NodeRequestNote | None, *, reserved: bool
) -> ReasonInfo:
    """The reason with what the owner of a pending workload wants to know beside it.

    ``nominated``: capacity is reserved for this workload, so waiting is worth it.
    ``preempted``: it ran before and was evicted.
    """
    info = reasons.from_core(reason, entry.workload.meta.project)
    if note is not None:
        info = reasons.about_nodes(info, note)
    if entry.workload.status.lowered_by:
        info = reasons.lowered(info, entry.workload.status.lowered_by)
    last = entry.workload.status.last_preemption
    data = {**info.data, "nominated": reserved, "preempted": last is not None}
    if last is None:
        return msgspec.structs.replace(info, data=data)
    history = reasons.gave_way(last)
    unnamed = f"{history} {data['sentence_without_names']}"
    return msgspec.structs.replace(
        info,
        sentence=f"{history} {info.sentence}",
        data={**data, "sentence_without_names": unnamed},
    )


def _same(
    status: WorkloadStatus, reason: Reason, note: NodeRequestNote | None, *, reserved: bool
) -> bool:
    """Whether the stored reason is the same: token, amounts, holders, what is said of nodes."""
    token = WAITS_FOR_NODES if note is not None and note.waits else reason.token.value
    stored = status.reason
    if stored is None or stored.token != token:
        return False
    known = stored.data
    if known.get("lowered_by", "") != status.lowered_by:
        return False
    if known.get("about_nodes", "") != ("" if note is None else note.sentence):
        return False
    holders = [(one.get("uid"), one.get("amount")) for one in known.get("holders", [])]
    return (
        known.get("short") == reason.short
        and known.get("bound") == reason.bound
        and known.get("nominated") == reserved
        and known.get("workload_uid", "") == reason.workload_uid
        and bool(known.get("passed_by")) == bool(reason.passed_by)
        and known.get("user_gpus", 0) == reason.user_gpus
        and holders == [(one.uid, one.amount) for one in reason.holders]
    )
