"""How long workloads may stay: the project's limits applied to what is known of each run.

What a kernel does is known from signs of life alone and is not kept over a restart of the
scheduler, nor is when a GPU last worked; GPUs whose use is not known count as working
(``state.gpu_use``). So no workspace counts as idle after one before a sign of
life has had the time to arrive, and GPUs count as idle from then on only: silence of the
scheduler's own making is no idleness. The time limit needs no sign and goes on.
"""

from typing import Final

from carrel_scheduler.policy import limits as policy
from carrel_scheduler.workloads.lifecycle.termination import stop_for
from carrel_scheduler.workloads.state import gpu_use, reasons
from carrel_scheduler.workloads.state.cache import CachedWorkload, WorkloadCache
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_schema.objects import Limits, ReasonInfo, StayRule

# Workspaces that met no answer try again at most a minute later; a look and a post come on top.
HEARING_SECONDS: Final = 90.0


def rule_of(cache: WorkloadCache, entry: CachedWorkload) -> StayRule:
    """The limits in force: those of the project, with those that the work sets itself."""
    return policy.with_own_limits(_project_rule(cache, entry), entry.workload.spec)


def _project_rule(cache: WorkloadCache, entry: CachedWorkload) -> StayRule:
    """The project's rule at its start, or the present one if changes are applied at once."""
    project = cache.projects.get(entry.workload.meta.project)
    kept = entry.workload.status.rule
    if project is None:
        return kept or StayRule()
    if kept is None or policy.applies_to_running(project.spec, entry.workload.spec):
        return policy.rule_for(project.spec, entry.workload.spec)
    return kept


def run_of(entry: CachedWorkload, now: float) -> policy.Run:
    """The present run, as the policy's functions take it."""
    status, activity = entry.workload.status, entry.activity
    limits = status.limits
    last_input = activity.last_input_at if activity else 0.0
    if activity is None and limits is not None and limits.idle_since is not None:
        last_input = limits.idle_since
    last_input = max(last_input, entry.visited_at)
    benefit_of_doubt = now if _unheard(entry, now) else None
    return policy.Run(
        started_at=status.started_at if status.started_at is not None else now,
        busy_since=activity.busy_since if activity else benefit_of_doubt,
        last_input_at=last_input,
        gpu_active_at=now if gpu_use.active(entry, now) else entry.gpu_active_at,
        extended_until=limits.extended_until if limits else None,
        extensions=limits.extensions if limits else 0,
        ran_seconds=0.0 if entry.workload.spec.kind == "workspace" else status.ran_seconds,
    )


def take_over(entry: CachedWorkload, now: float) -> None:
    """Take over the limits of running work after a restart of the scheduler."""
    if gpu_use.holds_gpus(entry):
        entry.gpu_active_at = now
    if entry.workload.spec.kind == "workspace" or policy.visited(entry.workload.spec):
        entry.hear_until = now + HEARING_SECONDS


def watched(entry: CachedWorkload) -> bool:
    """Whether limits may apply to the workload now."""
    return entry.workload.status.phase == "running"


def resumed_work(entry: CachedWorkload, now: float) -> bool:
    """Whether its GPUs work, or nobody knows, although its stop for being idle was announced."""
    limits = entry.workload.status.limits
    announced = limits is not None and limits.stops_because == policy.IDLE
    return announced and watched(entry) and gpu_use.active(entry, now)


def apply(changes: PassChanges, entry: CachedWorkload) -> float | None:
    """Stop a run whose time is up, else note what comes; returns when to look again."""
    rule, status = rule_of(changes.cache, entry), entry.workload.status
    limited = rule.time_limit_seconds is not None or rule.idle_timeout_seconds is not None
    if not limited and status.limits is None and entry.workload.spec.kind != "workspace":
        return None  # nothing will stop it, and nothing is to be told of that
    run = run_of(entry, changes.now)
    coming = policy.upcoming(rule, run, changes.now)
    if policy.strikes(coming, changes.now):
        stop_for(changes, entry, _reason(entry, rule, coming, changes.now))
        return None
    told = _worth_telling(entry, coming)
    if _differs(status.limits, told):
        status.limits = told
        changes.mark(entry)
    again = policy.next_look(rule, run, changes.now)
    if again is not None and _unheard(entry, changes.now):
        again = min(again, entry.hear_until)
    return again


def _unheard(entry: CachedWorkload, now: float) -> bool:
    return entry.activity is None and now < entry.hear_until


def _worth_telling(entry: CachedWorkload, coming: Limits) -> Limits | None:
    """Of work without an owner at its desk that nothing will stop there is nothing to say."""
    silent = entry.workload.spec.kind != "workspace" and coming.stops_at is None
    return None if silent else coming


def _reason(entry: CachedWorkload, rule: StayRule, coming: Limits, now: float) -> ReasonInfo:
    spec = entry.workload.spec
    kind, project = spec.kind, entry.workload.meta.project
    if coming.stops_because == policy.TIME_LIMIT:
        limit = rule.time_limit_seconds or 0.0
        if limit == spec.time_limit_seconds:
            return reasons.ran_its_time(kind, limit)
        return reasons.timed_out(kind, project, limit)
    since = coming.idle_since if coming.idle_since is not None else now
    if policy.visited(entry.workload.spec):
        return reasons.unvisited(now - since)
    if rule.idle_timeout_seconds == spec.idle_timeout_seconds:
        return reasons.own_idle(kind, rule.idle_timeout_seconds or 0.0, now - since)
    return reasons.idle(kind, project, rule.idle_timeout_seconds or 0.0, now - since)


def _differs(known: Limits | None, coming: Limits | None) -> bool:
    """Whether the change is worth writing: a deadline that moved, not every new sign of life."""
    if known is None or coming is None:
        return known is not coming
    return (
        known.stops_because != coming.stops_because
        or known.may_extend != coming.may_extend
        or known.extensions != coming.extensions
        or abs((known.stops_at or 0.0) - (coming.stops_at or 0.0)) > 1.0
        or (known.idle_since is None) != (coming.idle_since is None)
        or abs((known.idle_since or 0.0) - (coming.idle_since or 0.0)) > 1.0
    )
