"""What would be: questions answered on the live state, which is afterwards as it was before.

What is asked about is put into the columns, decided upon and taken out again, at the price of what
it touches and of one decision. Nothing is learned from it, no event is counted, and the plan of the
next decision is the same, byte for byte, as without the question. What stays are caches: the
number of a class that was seen, the width of a column.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from carrel_scheduler.core.changes.asking import ask, stop_asking
from carrel_scheduler.core.changes.cluster import queue_set
from carrel_scheduler.core.changes.promises import end_promise, hold
from carrel_scheduler.core.changes.workloads import check_workload, enter, forget
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.decide import ACTIONS, Action, decide
from carrel_scheduler.core.events import QueueSet, WorkloadQueued
from carrel_scheduler.core.explaining.possible import never_reason
from carrel_scheduler.core.plan import Binding, Eviction, Nomination, Plan
from carrel_scheduler.core.reasons import Reason, Token

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.cycle.cycle import Cycle
    from carrel_scheduler.core.work.jobs import Job


@dataclass(frozen=True, slots=True)
class Preview:
    """What a decision would do with a workload.

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
        """Whether it would start, or have room made for it."""
        return bool(self.bindings) or self.held is not None


def never(state: "Columns", queued: WorkloadQueued) -> Reason | None:
    """Why nothing could ever admit this workload under the present rules, or ``None``.

    Raises:
        InvalidEvent: the queue is unknown or an amount means nothing.
    """
    check_workload(queued)
    slot = state.queues.slot(queued.project, "project")
    shape = state.shapes.of(queued)
    reason = never_reason(state, slot, shape, queued.preemptible)
    if reason is None or reason.project:
        return reason
    return replace(reason, project=queued.project)


def what_if(state: "Columns", queued: WorkloadQueued, now: float) -> Preview:
    """What would be done if this workload were queued now, in the place of one of the same uid.

    Raises:
        InvalidEvent: as ``State.apply`` of the event would.
    """
    with queued_for_now(state, queued):
        return preview(decide(state, now, asked=queued.uid), queued.uid)


def forecast(state: "Columns", queued: WorkloadQueued | str, now: float) -> Reason:
    """What would happen to a workload now: ``STARTING``, or the reason why it would wait.

    Args:
        state: as it is.
        queued: a workload, or the uid of one that waits.
        now: epoch seconds.

    Raises:
        InvalidEvent: as ``State.apply`` of the event would.
        UnknownWorkload: the uid does not ask for room.
    """
    if isinstance(queued, str):
        state.job(queued)
        return decide(state, now, asked=queued).reasons[queued]
    return never(state, queued) or what_if(state, queued, now).reason


def impact(
    state: "Columns", queue: QueueSet, now: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What new rules of a queue would change at once.

    Returns:
        The uids that would start (or have room cleared for them) and those that would give way,
        each only because of the change, in the order of the plan.

    Raises:
        InvalidEvent: the rules mean nothing.
    """
    before = decide(state, now)
    served, already = _served(before), {eviction.uid for eviction in before.evictions}
    with rules_for_now(state, queue):
        after = decide(state, now)
        would_start = [uid for uid in _served(after) if uid not in served]
        would_give_way = [e.uid for e in after.evictions if e.uid not in already]
    return tuple(would_start), tuple(would_give_way)


def if_ended(state: "Columns", uids: Sequence[str], waits: str, now: float) -> Preview:
    """What would be done for a waiting workload if others ended now.

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
                cycle.moves.stop(job, index, Cause(Token.STARTING), fixed=fixed)

    actions: tuple[Action, ...] = (ACTIONS[0], end, *ACTIONS[1:])
    return preview(decide(state, now, actions, asked=waits), waits)


def preview(plan: Plan, uid: str) -> Preview:
    """What a plan does with one workload; read before the state changes."""
    held = [n for n in plan.nominations if n.uid == uid and n.places]
    mine = tuple(e for e in plan.evictions if e.reason.workload_uid == uid)
    starts = tuple(binding for binding in plan.bindings if binding.uid == uid)
    return Preview(plan.reasons[uid], starts, held[0] if held else None, mine)


@contextmanager
def queued_for_now(state: "Columns", queued: WorkloadQueued) -> Iterator["Job"]:
    """A workload asks for room inside the block, in the place of one of the same uid."""
    old = state.jobs.by_uid.get(queued.uid)
    if old is None or old.rows:
        job = enter(state, queued)
        try:
            yield job
        finally:
            forget(state, job)
        return
    promise = old.promise
    stop_asking(state, old)
    end_promise(state, old)
    del state.jobs.by_uid[queued.uid]
    try:
        job = enter(state, queued)
        try:
            yield job
        finally:
            forget(state, job)
    finally:
        state.jobs.by_uid[queued.uid] = old
        hold(state, old, promise)
        ask(state, old)


@contextmanager
def rules_for_now(state: "Columns", queue: QueueSet) -> Iterator[None]:
    """A queue has other rules inside the block."""
    columns = state.queues
    state.queues = columns.copy()
    try:
        queue_set(state, queue)
        yield
    finally:
        state.queues = columns


def _served(plan: Plan) -> tuple[str, ...]:
    """The uids that start or get room held, each once."""
    starting = [binding.uid for binding in plan.bindings]
    held = [nomination.uid for nomination in plan.nominations if nomination.places]
    return tuple(dict.fromkeys(starting + held))
