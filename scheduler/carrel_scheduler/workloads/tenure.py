"""How long workspaces may stay: the project's limits applied to what is known of each run.

What a kernel does is known from signs of life alone and is not kept over a restart of the
scheduler. So nobody counts as idle after one before a sign of life has had the time to arrive:
silence of the scheduler's own making is no idleness. The time limit needs no sign and goes on.
"""

from typing import Final

from carrel_scheduler.ledger.objects import InteractiveLimits, Limits, ReasonInfo
from carrel_scheduler.policy import limits as policy
from carrel_scheduler.workloads import sentences
from carrel_scheduler.workloads.book import Book, Entry
from carrel_scheduler.workloads.cycle import Cycle
from carrel_scheduler.workloads.spec_changes import stop_for

# Workspaces that met no answer try again at most a minute later; a look and a post come on top.
HEARING_SECONDS: Final = 90.0


def rule_of(book: Book, entry: Entry) -> InteractiveLimits:
    """The rule in force: the one at its start, unless the project applies changes at once."""
    project = book.projects.get(entry.workload.meta.project)
    kept = entry.workload.status.rule
    if project is None:
        return kept or InteractiveLimits()
    if kept is None or project.spec.interactive.apply_to_running:
        return project.spec.interactive
    return kept


def run_of(entry: Entry, now: float) -> policy.WorkspaceRun:
    """What the policy needs to know of the present run."""
    status, activity = entry.workload.status, entry.activity
    limits = status.limits
    last_input = activity.last_input_at if activity else 0.0
    if activity is None and limits is not None and limits.idle_since is not None:
        last_input = limits.idle_since
    benefit_of_doubt = now if _unheard(entry, now) else None
    return policy.WorkspaceRun(
        started_at=status.started_at if status.started_at is not None else now,
        busy_since=activity.busy_since if activity else benefit_of_doubt,
        last_input_at=last_input,
        gpu_active_at=entry.gpu_active_at,
        extended_until=limits.extended_until if limits else None,
        extensions=limits.extensions if limits else 0,
    )


def watched(entry: Entry) -> bool:
    """Whether limits apply to it now."""
    return entry.workload.spec.kind == "workspace" and entry.workload.status.phase == "running"


def judge(cycle: Cycle, entry: Entry) -> float | None:
    """Stop a workspace whose time is up, else note what comes; returns when to look again."""
    rule, run = rule_of(cycle.book, entry), run_of(entry, cycle.now)
    coming = policy.upcoming(rule, run, cycle.now)
    if policy.strikes(coming, cycle.now):
        stop_for(cycle, entry, _reason(entry, rule, coming, cycle.now))
        return None
    if _differs(entry.workload.status.limits, coming):
        entry.workload.status.limits = coming
        cycle.mark(entry)
    again = policy.next_look(rule, run, cycle.now)
    if again is not None and _unheard(entry, cycle.now):
        again = min(again, entry.hear_until)
    return again


def _unheard(entry: Entry, now: float) -> bool:
    return entry.activity is None and now < entry.hear_until


def _reason(entry: Entry, rule: InteractiveLimits, coming: Limits, now: float) -> ReasonInfo:
    project = entry.workload.meta.project
    if coming.stops_because == policy.TIME_LIMIT:
        return sentences.timed_out(project, rule.time_limit_seconds or 0.0)
    since = coming.idle_since if coming.idle_since is not None else now
    return sentences.idle(project, rule.idle_timeout_seconds or 0.0, now - since)


def _differs(known: Limits | None, coming: Limits) -> bool:
    """Whether the change is worth writing: a deadline that moved, not every new sign of life."""
    if known is None:
        return True
    return (
        known.stops_because != coming.stops_because
        or known.may_extend != coming.may_extend
        or known.extensions != coming.extensions
        or abs((known.stops_at or 0.0) - (coming.stops_at or 0.0)) > 1.0
        or (known.idle_since is None) != (coming.idle_since is None)
        or abs((known.idle_since or 0.0) - (coming.idle_since or 0.0)) > 1.0
    )
