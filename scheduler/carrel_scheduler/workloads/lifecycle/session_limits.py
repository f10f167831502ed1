"""Session limits: when a run has to stop, and when its owner is warned.

Two rules of a project apply to its workspaces and, with values of their own, to its trainings. The
*time limit* counts a workspace's time in running since its last start, and all of the time in
running of other work: suspension, preemption and failures do not begin it anew. Once it has struck,
a run that is resumed begins anew, like work that is submitted again. Work may have lower limits of
its own. The *idle timeout* counts from the last sign of activity; active means a kernel executing
somebody's request (up to a hard cap, so that a forgotten endless loop does not hold a GPU for
ever), an execute request, a terminal keystroke, a save, or work on one of its GPUs. An open browser
tab is no activity, a silent computing cell is.

An extension pushes the coming stop, whichever it is, to a later instant; how often is the
project's choice. A workspace that sends no heartbeat at all is judged by its GPUs alone, as is
every training; a training without GPUs has nothing to leave idle.

What a kernel does is known from heartbeats alone and is not kept over a restart of the
scheduler, nor is when a GPU last worked; GPUs whose use is not known count as working
(``state.gpu_use``). So no workspace counts as idle after a restart before a
heartbeat had the time to arrive, and GPUs count as idle from then on only: silence that the
scheduler caused is no idleness. The time limit needs no heartbeat and goes on.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from carrel_scheduler.core.mig import counted_gpu_milli
from carrel_scheduler.workloads.lifecycle.termination import stop_for
from carrel_scheduler.workloads.state import gpu_use, reasons
from carrel_scheduler.workloads.state.cache import CachedWorkload, WorkloadCache
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_schema.kinds import KINDS
from carrel_schema.objects import Limits, ProjectSpec, ReasonInfo, StayRule, WorkloadSpec

TIME_LIMIT = "TimeLimit"
IDLE = "Idle"
# Workspaces that met no answer try again at most a minute later; a look and a post come on top.
HEARING_SECONDS: Final = 90.0


@dataclass(frozen=True, slots=True)
class LimitedRun:
    """A run of a workload. Times are epoch seconds.

    Attributes:
        busy_since: a kernel has been executing since then without a break; ``None``: none does.
        last_input_at: the latest execute request, keystroke or save seen (0: none yet).
        gpu_active_at: when one of its GPUs last worked (0: never, or it holds none); now while it
            does.
        extended_until: not before this instant, whatever the rules say.
        ran_seconds: time in running before this run that counts for the time limit.
    """

    started_at: float
    busy_since: float | None = None
    last_input_at: float = 0.0
    gpu_active_at: float = 0.0
    extended_until: float | None = None
    extensions: int = 0
    ran_seconds: float = 0.0


def with_own_limits(rule: StayRule, work: WorkloadSpec) -> StayRule:
    """The project's rule with the limits that the work itself asked for, where they are lower."""
    return msgspec.structs.replace(
        rule,
        time_limit_seconds=_lower(rule.time_limit_seconds, work.time_limit_seconds),
        idle_timeout_seconds=_lower(rule.idle_timeout_seconds, work.idle_timeout_seconds),
    )


def _lower(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)


def rule_for(project: ProjectSpec, work: WorkloadSpec) -> StayRule:
    """The project's limits for a workload of this kind and request."""
    rules = KINDS[work.kind].rules
    if rules == "none":
        return StayRule(idle_timeout_seconds=visited(work), warn_before_seconds=0.0)
    if rules == "interactive":
        return project.interactive
    holds_gpus = counted_gpu_milli(work.resources) > 0
    return StayRule(
        time_limit_seconds=project.training.time_limit_seconds,
        idle_timeout_seconds=project.training.idle_gpu_seconds if holds_gpus else None,
        warn_before_seconds=0.0,
    )


def visited(work: WorkloadSpec) -> float | None:
    """Seconds without visitors after which it is stopped; ``None``: it stays without them.

    Only for kinds that no other rule of their project applies to.
    """
    if KINDS[work.kind].rules != "none":
        return None
    asked = (route.idle_seconds for route in work.routes)
    return max((seconds for seconds in asked if seconds is not None), default=None)


def applies_to_running(project: ProjectSpec, work: WorkloadSpec) -> bool:
    """Whether changed limits also apply to running work."""
    rules = KINDS[work.kind].rules
    limits = project.interactive if rules == "interactive" else project.training
    return limits.apply_to_running


def active_until(rule: StayRule, run: LimitedRun, now: float) -> float:
    """The last instant at which the run counted as active; ``now`` while it does."""
    latest = max(run.started_at, run.last_input_at, run.gpu_active_at)
    if run.busy_since is not None:
        cap = rule.busy_cap_seconds
        busy_until = now if cap is None else min(now, run.busy_since + cap)
        latest = max(latest, busy_until)
    return min(latest, now)


def upcoming(rule: StayRule, run: LimitedRun, now: float) -> Limits:
    """The stop that comes next if nothing changes, and when to warn of it.

    While the run is active the idle stop lies ``idle_timeout_seconds`` ahead and moves on; it is
    reported only once the run is idle, since a moving deadline confuses people.
    """
    idle_since = active_until(rule, run, now)
    candidates: list[tuple[float, str]] = []
    if rule.time_limit_seconds is not None:
        left = rule.time_limit_seconds - run.ran_seconds
        candidates.append((run.started_at + left, TIME_LIMIT))
    if rule.idle_timeout_seconds is not None and idle_since < now:
        candidates.append((idle_since + rule.idle_timeout_seconds, IDLE))
    may_extend = run.extensions < rule.max_extensions
    if not candidates:
        return Limits(
            idle_since=idle_since if idle_since < now else None,
            extended_until=run.extended_until,
            extensions=run.extensions,
            may_extend=False,
        )
    stops_at, because = min(candidates)
    if run.extended_until is not None:
        stops_at = max(stops_at, run.extended_until)
    return Limits(
        stops_at=stops_at,
        stops_because=because,
        warn_at=stops_at - rule.warn_before_seconds,
        idle_since=idle_since if idle_since < now else None,
        extended_until=run.extended_until,
        extensions=run.extensions,
        may_extend=may_extend,
    )


def strikes(limits: Limits, now: float) -> bool:
    """Whether the run has to stop now."""
    return limits.stops_at is not None and limits.stops_at <= now


def next_look(rule: StayRule, run: LimitedRun, now: float) -> float | None:
    """The next time to check this run if no activity is reported; ``None``: there is none.

    One that is active is checked again after half its idle timeout: were it checked only when that
    has passed, it would be stopped before its owner was warned.
    """
    limits = upcoming(rule, run, now)
    looks = [] if limits.stops_at is None else [limits.stops_at]
    if rule.idle_timeout_seconds is not None and limits.idle_since is None:
        active = now
        if run.busy_since is not None and rule.busy_cap_seconds is not None:
            active = max(now, run.busy_since + rule.busy_cap_seconds)
        looks.append(active + rule.idle_timeout_seconds / 2)
    return min(looks, default=None)


def extend(rule: StayRule, run: LimitedRun, now: float) -> LimitedRun:
    """The run after its owner extended it; the caller has checked ``may_extend``."""
    coming = upcoming(rule, run, now).stops_at
    base = now if coming is None else max(now, coming)
    return LimitedRun(
        started_at=run.started_at,
        busy_since=run.busy_since,
        last_input_at=run.last_input_at,
        gpu_active_at=run.gpu_active_at,
        extended_until=base + rule.extend_seconds,
        extensions=run.extensions + 1,
        ran_seconds=run.ran_seconds,
    )


def rule_of(cache: WorkloadCache, entry: CachedWorkload) -> StayRule:
    """The limits in force: those of the project, with those that the work sets itself."""
    return with_own_limits(_project_rule(cache, entry), entry.workload.spec)


def _project_rule(cache: WorkloadCache, entry: CachedWorkload) -> StayRule:
    """The project's rule at its start, or the present one if changes are applied at once."""
    project = cache.projects.get(entry.workload.meta.project)
    kept = entry.workload.status.rule
    if project is None:
        return kept or StayRule()
    if kept is None or applies_to_running(project.spec, entry.workload.spec):
        return rule_for(project.spec, entry.workload.spec)
    return kept


def run_of(entry: CachedWorkload, now: float) -> LimitedRun:
    """The present run, from what is known of it."""
    status, activity = entry.workload.status, entry.activity
    limits = status.limits
    last_input = activity.last_input_at if activity else 0.0
    if activity is None and limits is not None and limits.idle_since is not None:
        last_input = limits.idle_since
    last_input = max(last_input, entry.visited_at)
    benefit_of_doubt = now if _unheard(entry, now) else None
    return LimitedRun(
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
    if entry.workload.spec.kind == "workspace" or visited(entry.workload.spec):
        entry.hear_until = now + HEARING_SECONDS


def watched(entry: CachedWorkload) -> bool:
    """Whether limits may apply to the workload now."""
    return entry.workload.status.phase == "running"


def resumed_work(entry: CachedWorkload, now: float) -> bool:
    """Whether its GPUs work, or nobody knows, although its stop for being idle was announced."""
    limits = entry.workload.status.limits
    announced = limits is not None and limits.stops_because == IDLE
    return announced and watched(entry) and gpu_use.active(entry, now)


def apply(changes: PassChanges, entry: CachedWorkload) -> float | None:
    """Stop a run whose time is up, else note what comes; returns when to look again."""
    rule, status = rule_of(changes.cache, entry), entry.workload.status
    limited = rule.time_limit_seconds is not None or rule.idle_timeout_seconds is not None
    if not limited and status.limits is None and entry.workload.spec.kind != "workspace":
        return None  # nothing will stop it, and nothing is to be told of that
    run = run_of(entry, changes.now)
    coming = upcoming(rule, run, changes.now)
    if strikes(coming, changes.now):
        stop_for(changes, entry, _reason(entry, rule, coming, changes.now))
        return None
    told = _worth_telling(entry, coming)
    if _differs(status.limits, told):
        status.limits = told
        changes.mark(entry)
    again = next_look(rule, run, changes.now)
    if again is not None and _unheard(entry, changes.now):
        again = min(again, entry.hear_until)
    return again


def _unheard(entry: CachedWorkload, now: float) -> bool:
    return entry.activity is None and now < entry.hear_until


def _worth_telling(entry: CachedWorkload, coming: Limits) -> Limits | None:
    """The limits that are worth showing: of work other than workspaces only those that stop it."""
    silent = entry.workload.spec.kind != "workspace" and coming.stops_at is None
    return None if silent else coming


def _reason(entry: CachedWorkload, rule: StayRule, coming: Limits, now: float) -> ReasonInfo:
    spec = entry.workload.spec
    kind, project = spec.kind, entry.workload.meta.project
    if coming.stops_because == TIME_LIMIT:
        limit = rule.time_limit_seconds or 0.0
        if limit == spec.time_limit_seconds:
            return reasons.ran_its_time(kind, limit)
        return reasons.timed_out(kind, project, limit)
    since = coming.idle_since if coming.idle_since is not None else now
    if visited(entry.workload.spec):
        return reasons.unvisited(now - since)
    if rule.idle_timeout_seconds == spec.idle_timeout_seconds:
        return reasons.own_idle(kind, rule.idle_timeout_seconds or 0.0, now - since)
    return reasons.idle(kind, project, rule.idle_timeout_seconds or 0.0, now - since)


def _differs(known: Limits | None, coming: Limits | None) -> bool:
    """Whether the change is worth writing: a deadline that moved, not every new heartbeat."""
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
