"""What would be: questions answered on a copy of the state, which is then dropped."""

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import ProjectSet, WorkloadQueued
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.possible import never_reason
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.state import State
from carrel_scheduler.core.workloads import new_record


def never(state: State, queued: WorkloadQueued) -> Reason | None:
    """Why nothing could ever admit this workload under the present rules, or ``None``.

    Raises:
        InvalidEvent: the project is unknown or an amount means nothing.
    """
    slot = state.project_columns.slot(queued.project)
    return never_reason(state, new_record(queued, slot))


def forecast(state: State, queued: WorkloadQueued, now: float) -> Reason:
    """What would happen to this workload now: ``STARTING``, or the reason why it would wait.

    Raises:
        InvalidEvent: as ``State.apply`` of the event would.
    """
    refused = never(state, queued)
    if refused is not None:
        return refused
    trial = state.copy()
    trial.apply(queued)
    plan = decide(trial, now)
    waits = plan.reasons.get(queued.uid)
    if waits is not None:
        return waits
    return Reason(
        ReasonClass.STARTING,
        Token.STARTING,
        project=queued.project,
        workload=queued.name,
        workload_uid=queued.uid,
        nodes=tuple(sorted({b.node for b in plan.bindings if b.uid == queued.uid})),
    )


def impact(
    state: State, project: ProjectSet, now: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What new rules of a project would change at once.

    Returns:
        The uids that would start (or have room cleared for them) and those that would give way,
        each only because of the change, in the order of the plan.

    Raises:
        InvalidEvent: the rules mean nothing.
    """
    trial = state.copy()
    trial.apply(project)
    before, after = decide(state, now), decide(trial, now)
    would_start = [uid for uid in _served(after) if uid not in _served(before)]
    already = {eviction.uid for eviction in before.evictions}
    would_give_way = [e.uid for e in after.evictions if e.uid not in already]
    return tuple(would_start), tuple(would_give_way)


def _served(plan: Plan) -> tuple[str, ...]:
    """The uids that start or get room held, each once."""
    starting = [binding.uid for binding in plan.bindings]
    held = [nomination.uid for nomination in plan.nominations if nomination.places]
    return tuple(dict.fromkeys(starting + held))
