"""Dry runs, made on the live state, which is afterwards as before.

What is asked about is put into the columns, decided upon and taken out again, at the price of one
decision. Nothing is learned, no event is counted, and the next plan is the same, byte for byte.
Only caches stay: the number of a class, the width of a column. ``remedies`` tries the changes
that might unblock a waiting workload, chosen by its reason, and returns those that do.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from carrel_scheduler.core.changes.cluster import queue_set, renew_rows
from carrel_scheduler.core.changes.workloads import (
    ask,
    check_workload,
    enter,
    forget,
    release_reservation,
    reserve,
    stop_asking,
)
from carrel_scheduler.core.cycle.group_usage import GroupUsage
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.decide import ACTIONS, Action, decide
from carrel_scheduler.core.events import Preemptibility, QueueSet, WorkloadQueued
from carrel_scheduler.core.explaining import group_limits
from carrel_scheduler.core.explaining.impossible import never_reason, on_rules
from carrel_scheduler.core.plan import Binding, Eviction, Nomination, Plan
from carrel_scheduler.core.queues.headroom import Headroom
from carrel_scheduler.core.queues.usage import RESOURCE_NAMES
from carrel_scheduler.core.reasons import Reason, Token
from carrel_scheduler.core.resources import NONE, UNLIMITED, ResourceVector

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.cycle.cycle import Cycle
    from carrel_scheduler.core.work.jobs import JobInfo


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of one decision for a workload.

    Attributes:
        reason: why it waits, or that it starts.
        bindings: where its tasks would start at once.
        held: the places that would be held for it, or ``None``.
        gives_way: who would stop for it.
    """

    reason: Reason
    bindings: tuple[Binding, ...] = ()
    held: Nomination | None = None
    gives_way: tuple[Eviction, ...] = ()

    @property
    def served(self) -> bool:
        """Whether the workload would start or get a reservation."""
        return bool(self.bindings) or self.held is not None


def never(
    state: "Columns", queued: WorkloadQueued, others: Collection[Token] = ()
) -> Reason | None:
    """The reason why nothing could ever admit this workload under the present rules, or ``None``.

    Args:
        state: as it is.
        queued: the workload.
        others: reasons that are none where nodes are added: then only rules refuse it.

    Raises:
        InvalidEvent: the queue is unknown or an amount means nothing.
    """
    check_workload(queued)
    slot = state.queues.slot(queued.project, "project")
    shape = state.shapes.of(queued)
    reason = never_reason(state, slot, shape, queued.preemptible)
    if reason is not None and reason.token in others:
        reason = on_rules(state, slot, shape, queued.preemptible)
    reason = reason or group_limits.never(state, slot, shape)
    if reason is None or reason.project:
        return reason
    return replace(reason, project=queued.project)


def within_quota(state: "Columns", queued: WorkloadQueued) -> bool:
    """Whether a workload, with all that is held now, would be within quotas and limits."""
    slot, first = state.queues.slot(queued.project, "project"), state.shapes.of(queued).first
    fixed = NONE if queued.preemptible is Preemptibility.YES else first
    return Headroom(state.queues).violation(slot, first, fixed) is None


def what_if(state: "Columns", queued: WorkloadQueued, now: float) -> Preview:
    """The decision if this workload were queued now, in the place of one of the same uid.

    Raises:
        InvalidEvent: as ``State.apply`` of the event would.
    """
    with queued_for_now(state, queued):
        return preview(decide(state, now, asked=queued.uid), queued.uid)


def forecast(state: "Columns", queued: WorkloadQueued | str, now: float) -> Reason:
    """The forecast for a workload: ``STARTING``, or the reason why it would wait.

    Args:
        state: as it is.
        queued: a workload, or the uid of one that waits.
        now: epoch seconds.

    Raises:
        InvalidEvent: as ``State.apply`` of the event would.
        UnknownWorkload: the uid does not ask for capacity.
    """
    if isinstance(queued, str):
        state.job(queued)
        return decide(state, now, asked=queued).reasons[queued]
    return never(state, queued) or what_if(state, queued, now).reason


def fewer_gpus(state: "Columns", queued: WorkloadQueued, now: float) -> int:
    """The number of GPUs, fewer than it asks for, with which a workload would start now.

    Halves of what it asks for are tried one after the other, each at the price of a decision. 0: it
    starts with none of them, has several tasks, or asks for one GPU or a part of one.

    Raises:
        InvalidEvent: as ``State.apply`` of the event would.
    """
    gpus = queued.request.gpus // 2 if queued.gang is None and queued.tasks == 1 else 0
    while gpus:
        fewer = replace(queued, request=replace(queued.request, gpus=gpus))
        if what_if(state, fewer, now).bindings:
            return gpus
        gpus //= 2
    return 0


def impact(
    state: "Columns",
    queue: QueueSet,
    now: float,
    *others: QueueSet,
    entering: Sequence[WorkloadQueued] = (),
    leaving: Sequence[str] = (),
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The uids that new rules of queues would start, and those they would evict, at once.

    Args:
        state: as it is.
        queue: its new rules.
        now: epoch seconds.
        others: new rules of other queues.
        entering: work that would ask for capacity with the new rules only.
        leaving: uids of work that holds nothing, and would ask for none any more.

    Returns:
        The uids that would start (or get a reservation) and those that would be
        evicted, each only because of the change, in the order of the plan.

    Raises:
        InvalidEvent: the rules mean nothing.
    """
    before = decide(state, now)
    served, already = _served(before), {eviction.uid for eviction in before.evictions}
    with ExitStack() as changed:
        changed.enter_context(rules_for_now(state, queue, *others))
        for uid in leaving:
            changed.enter_context(left_out_for_now(state, uid))
        for one in entering:
            changed.enter_context(queued_for_now(state, one))
        after = decide(state, now)
        would_start = [uid for uid in _served(after) if uid not in served]
        would_give_way = [e.uid for e in after.evictions if e.uid not in already]
    return tuple(would_start), tuple(would_give_way)


def if_ended(state: "Columns", uids: Sequence[str], waits: str, now: float) -> Preview:
    """The decision about a waiting workload if other workloads ended now.

    Args:
        state: as it is.
        uids: of running workloads.
        waits: the uid of the waiting one.
        now: epoch seconds.

    Raises:
        UnknownWorkload: one of them is not known.
    """
    ending = [state.job(uid) for uid in uids]

    def end(cycle: "Cycle") -> None:
        for job in ending:
            for index in job.running():
                fixed = cycle.is_protected(job, [index])
                cycle.moves.evict(job, index, Cause(Token.STARTING), fixed=fixed)

    actions: tuple[Action, ...] = (ACTIONS[0], end, *ACTIONS[1:])
    return preview(decide(state, now, actions, asked=waits), waits)


def preview(plan: Plan, uid: str) -> Preview:
    """The part of a plan for one workload; to be read before the state changes."""
    held = [n for n in plan.nominations if n.uid == uid and n.places]
    mine = tuple(e for e in plan.evictions if e.reason.workload_uid == uid)
    starts = tuple(binding for binding in plan.bindings if binding.uid == uid)
    return Preview(plan.reasons[uid], starts, held[0] if held else None, mine)


@contextmanager
def queued_for_now(state: "Columns", queued: WorkloadQueued) -> Iterator["JobInfo"]:
    """A workload asks for capacity inside the block, in the place of one of the same uid."""
    old = state.jobs.by_uid.get(queued.uid)
    if old is None or old.rows:
        job = enter(state, queued)
        try:
            yield job
        finally:
            forget(state, job)
        return
    with left_out_for_now(state, queued.uid):
        job = enter(state, queued)
        try:
            yield job
        finally:
            forget(state, job)


@contextmanager
def left_out_for_now(state: "Columns", uid: str) -> Iterator[None]:
    """Take a workload that holds no allocation out of the pending work inside the block."""
    old = state.jobs.by_uid[uid]
    reservation = old.reservation
    stop_asking(state, old)
    release_reservation(state, old)
    del state.jobs.by_uid[uid]
    try:
        yield
    finally:
        state.jobs.by_uid[uid] = old
        reserve(state, old, reservation)
        ask(state, old)


@contextmanager
def rules_for_now(state: "Columns", *queues: QueueSet) -> Iterator[None]:
    """Queues have other rules inside the block."""
    columns = state.queues
    state.queues = columns.copy()
    try:
        for queue in queues:
            queue_set(state, queue)
        yield
    finally:
        state.queues = columns
        for queue in queues:
            if queue.name in columns.slots:
                renew_rows(state, columns.slots[queue.name])


def _served(plan: Plan) -> tuple[str, ...]:
    """The uids that start or get a reservation, without duplicates."""
    starting = [binding.uid for binding in plan.bindings]
    held = [nomination.uid for nomination in plan.nominations if nomination.places]
    return tuple(dict.fromkeys(starting + held))


TRIED: Final = 3
"""The most holders of which it is tried what their end would do."""


QUOTAS: Final = (Token.NON_PREEMPTIBLE_BEYOND_QUOTA, Token.QUOTA_USED)
"""About quotas, in all or in a group of nodes."""


class RemedyKind(StrEnum):
    """The kind of change that would unblock a workload."""

    QUOTA = "more-quota"
    LIMIT = "higher-limit"
    GROUP_LIMIT = "higher-node-group-limit"
    GROUP_QUOTA = "more-quota-in-node-group"
    BORROW = "may-borrow"
    PREEMPTIBLE = "preemptible"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the workload would start, or get a reservation.

    Attributes:
        queue: whose rule is changed, or to whom the ending workload belongs.
        resource, amount: what the quota or limit would have to be, in the unit of the resource.
        group: the group of nodes that this limit or quota is for.
        uid, name: of the workload that ends.
    """

    change: RemedyKind
    queue: str = ""
    resource: str = ""
    amount: int = 0
    uid: str = ""
    name: str = ""
    group: str = ""


def remedies(state: "Columns", uid: str, now: float) -> tuple[Remedy, ...]:
    """The changes that would unblock a waiting workload, the smallest first.

    Each candidate costs one decision; there are at most five. Empty for what starts anyway.

    Raises:
        UnknownWorkload: nobody of that uid.
        KeyError: it does not ask for capacity.
    """
    job = state.job(uid)
    found = preview(decide(state, now, asked=uid), uid)
    if found.served:
        return ()
    reason = found.reason
    return tuple(remedy for remedy, helps in _candidates(state, job.spec.uid, reason, now) if helps)


def _candidates(
    state: "Columns", uid: str, reason: Reason, now: float
) -> Iterator[tuple[Remedy, bool]]:
    spec = state.job(uid).spec
    if spec.preemptible is Preemptibility.NO and not spec.interactive:
        freely = replace(spec, preemptible=Preemptibility.YES)
        yield Remedy(RemedyKind.PREEMPTIBLE), what_if(state, freely, now).served
    for remedy, rules in _other_rules(state, reason):
        with rules_for_now(state, rules):
            helps = preview(decide(state, now, asked=uid), uid).served
        yield remedy, helps
    for holder in reason.holders[:TRIED]:
        remedy = Remedy(RemedyKind.ENDS, holder.project, uid=holder.uid, name=holder.name)
        yield remedy, if_ended(state, [holder.uid], uid, now).served


def _other_rules(state: "Columns", reason: Reason) -> list[tuple[Remedy, QueueSet]]:
    if reason.project not in state.queues.slots or reason.resource not in RESOURCE_NAMES:
        return []
    rule = state.queues.rule(state.queues.slots[reason.project])
    place, needed = RESOURCE_NAMES.index(reason.resource), reason.bound + reason.short
    if reason.token is Token.OVER_LIMIT:
        remedy = Remedy(RemedyKind.LIMIT, rule.name, reason.resource, needed)
        return [(remedy, replace(rule, limit=_with(rule.limit, place, needed)))]
    if reason.token is Token.OVER_GROUP_LIMIT:
        limits = dict(rule.group_limits) | {reason.detail: needed}
        remedy = Remedy(
            RemedyKind.GROUP_LIMIT, rule.name, reason.resource, needed, group=reason.detail
        )
        return [(remedy, replace(rule, group_limits=tuple(sorted(limits.items()))))]
    if reason.token is Token.OVER_QUOTA_OFF:
        return [(Remedy(RemedyKind.BORROW, rule.name), replace(rule, over_quota=True))]
    if reason.detail and reason.token in QUOTAS:
        if reason.token is Token.QUOTA_USED:
            held = GroupUsage(state).held(state.queues.slots[rule.name], reason.detail)
            needed = held + reason.requested
        quotas = dict(rule.group_quotas) | {reason.detail: needed}
        remedy = Remedy(
            RemedyKind.GROUP_QUOTA, rule.name, reason.resource, needed, group=reason.detail
        )
        return [(remedy, replace(rule, group_quotas=tuple(sorted(quotas.items()))))]
    if reason.token is Token.NON_PREEMPTIBLE_BEYOND_QUOTA:
        remedy = Remedy(RemedyKind.QUOTA, rule.name, reason.resource, needed)
        return [(remedy, replace(rule, quota=_with(rule.quota, place, needed)))]
    if reason.token is Token.QUOTA_USED:
        held = int(state.queues.used[state.queues.slots[rule.name], place])
        remedy = Remedy(RemedyKind.QUOTA, rule.name, reason.resource, held + reason.requested)
        quota = _with(rule.quota, place, held + reason.requested)
        return [(remedy, replace(rule, quota=quota))]
    return []


def _with(amounts: ResourceVector, place: int, value: int) -> ResourceVector:
    """The amounts with one at least so large."""
    gpu, cpu, memory = (
        amount if index != place or amount == UNLIMITED else max(amount, value)
        for index, amount in enumerate(amounts.as_tuple())
    )
    return ResourceVector(gpu, cpu, memory)
