"""When a workspace has to stop, and when its owner is told: pure, time is given.

Two rules of a project apply to its workspaces. The *time limit* counts the time in running since
the last start. The *idle timeout* counts from the last sign of activity; active means a kernel
executing somebody's request (up to a hard cap, so that a forgotten endless loop does not hold a
GPU for ever), an execute request, a terminal keystroke, a save, or work on one of its GPUs. An open
browser tab is no activity, a silent computing cell is.

An extension pushes the coming stop, whichever it is, to a later instant; how often is the
project's choice. A workspace that sends no sign of life at all is judged by its GPUs alone.
"""

from dataclasses import dataclass

from carrel_scheduler.ledger.objects import InteractiveLimits, Limits

TIME_LIMIT = "TimeLimit"
IDLE = "Idle"


@dataclass(frozen=True, slots=True)
class WorkspaceRun:
    """What is known of one run of a workspace. Times are epoch seconds.

    Attributes:
        busy_since: a kernel has been executing since then without a break; ``None``: none does.
        last_input_at: the latest execute request, keystroke or save seen (0: none yet).
        gpu_active_at: when one of its GPUs last worked (0: never, or it holds none).
        extended_until: not before this instant, whatever the rules say.
    """

    started_at: float
    busy_since: float | None = None
    last_input_at: float = 0.0
    gpu_active_at: float = 0.0
    extended_until: float | None = None
    extensions: int = 0


def active_until(rule: InteractiveLimits, run: WorkspaceRun, now: float) -> float:
    """The last instant at which the workspace counted as active; ``now`` while it does."""
    latest = max(run.started_at, run.last_input_at, run.gpu_active_at)
    if run.busy_since is not None:
        cap = rule.busy_cap_seconds
        busy_until = now if cap is None else min(now, run.busy_since + cap)
        latest = max(latest, busy_until)
    return min(latest, now)


def upcoming(rule: InteractiveLimits, run: WorkspaceRun, now: float) -> Limits:
    """The stop that comes next if nothing changes, and when to warn of it.

    While the workspace is active the idle stop lies ``idle_timeout_seconds`` ahead and moves on;
    it is reported only once the workspace is idle, since a moving deadline confuses people.
    """
    idle_since = active_until(rule, run, now)
    candidates: list[tuple[float, str]] = []
    if rule.time_limit_seconds is not None:
        candidates.append((run.started_at + rule.time_limit_seconds, TIME_LIMIT))
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
    """Whether the workspace has to stop now."""
    return limits.stops_at is not None and limits.stops_at <= now


def next_look(rule: InteractiveLimits, run: WorkspaceRun, now: float) -> float | None:
    """When to judge this run again if nothing is heard of it; ``None``: never by itself."""
    limits = upcoming(rule, run, now)
    if limits.stops_at is not None:
        return limits.stops_at
    if rule.idle_timeout_seconds is None:
        return None
    if run.busy_since is not None and rule.busy_cap_seconds is not None:
        return max(now, run.busy_since + rule.busy_cap_seconds) + rule.idle_timeout_seconds
    return now + rule.idle_timeout_seconds


def extend(rule: InteractiveLimits, run: WorkspaceRun, now: float) -> WorkspaceRun:
    """The run after its owner asked to keep it; the caller checked ``may_extend``."""
    coming = upcoming(rule, run, now).stops_at
    base = now if coming is None else max(now, coming)
    return WorkspaceRun(
        started_at=run.started_at,
        busy_since=run.busy_since,
        last_input_at=run.last_input_at,
        gpu_active_at=run.gpu_active_at,
        extended_until=base + rule.extend_seconds,
        extensions=run.extensions + 1,
    )
