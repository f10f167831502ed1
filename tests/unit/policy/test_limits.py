"""The interactive limits: time limit, idle timeout, busy cap, extension."""

from carrel_scheduler.ledger.objects import InteractiveLimits
from carrel_scheduler.policy.limits import (
    IDLE,
    TIME_LIMIT,
    WorkspaceRun,
    extend,
    next_look,
    strikes,
    upcoming,
)

HOUR = 3600.0
T0 = 1_000_000.0


def test_without_rules_nothing_is_coming() -> None:
    limits = upcoming(InteractiveLimits(), WorkspaceRun(started_at=T0), T0 + 99 * HOUR)
    assert limits.stops_at is None
    assert next_look(InteractiveLimits(), WorkspaceRun(started_at=T0), T0) is None


def test_time_limit_strikes_at_its_second_and_warns_before() -> None:
    rule = InteractiveLimits(time_limit_seconds=60.0, warn_before_seconds=10.0)
    run = WorkspaceRun(started_at=T0)
    coming = upcoming(rule, run, T0 + 1)
    assert (coming.stops_at, coming.stops_because, coming.warn_at) == (T0 + 60, TIME_LIMIT, T0 + 50)
    assert not strikes(upcoming(rule, run, T0 + 59.9), T0 + 59.9)
    assert strikes(upcoming(rule, run, T0 + 60), T0 + 60)


def test_idle_timeout_counts_from_the_last_input() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=120.0)
    run = WorkspaceRun(started_at=T0, last_input_at=T0 + 30)
    assert not strikes(upcoming(rule, run, T0 + 149), T0 + 149)
    coming = upcoming(rule, run, T0 + 150)
    assert strikes(coming, T0 + 150)
    assert coming.stops_because == IDLE
    assert coming.idle_since == T0 + 30


def test_one_second_of_gpu_work_at_119_s_resets_the_idle_clock() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=120.0)
    quiet = WorkspaceRun(started_at=T0)
    assert strikes(upcoming(rule, quiet, T0 + 120), T0 + 120)
    worked = WorkspaceRun(started_at=T0, gpu_active_at=T0 + 119)
    assert not strikes(upcoming(rule, worked, T0 + 120), T0 + 120)
    assert strikes(upcoming(rule, worked, T0 + 239), T0 + 239)


def test_a_silent_computing_cell_is_active_until_the_cap() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=60.0, busy_cap_seconds=HOUR)
    run = WorkspaceRun(started_at=T0, last_input_at=T0 + 5, busy_since=T0 + 5)
    during = upcoming(rule, run, T0 + HOUR / 2)
    assert during.stops_at is None
    assert during.idle_since is None
    beyond = T0 + 5 + HOUR + 60
    assert not strikes(upcoming(rule, run, beyond - 1), beyond - 1)
    assert strikes(upcoming(rule, run, beyond), beyond)


def test_without_a_cap_a_busy_kernel_never_idles() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=60.0, busy_cap_seconds=None)
    run = WorkspaceRun(started_at=T0, busy_since=T0)
    assert upcoming(rule, run, T0 + 1000 * HOUR).stops_at is None


def test_a_workspace_that_never_told_anything_idles_from_its_start() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=60.0)
    assert strikes(upcoming(rule, WorkspaceRun(started_at=T0), T0 + 60), T0 + 60)


def test_the_earlier_of_both_limits_is_told() -> None:
    rule = InteractiveLimits(time_limit_seconds=100.0, idle_timeout_seconds=30.0)
    run = WorkspaceRun(started_at=T0, last_input_at=T0 + 80)
    assert upcoming(rule, run, T0 + 81).stops_because == TIME_LIMIT
    early = WorkspaceRun(started_at=T0, last_input_at=T0 + 10)
    assert upcoming(rule, early, T0 + 20).stops_because == IDLE


def test_extension_moves_the_coming_stop_and_is_counted() -> None:
    rule = InteractiveLimits(time_limit_seconds=60.0, extend_seconds=HOUR, max_extensions=1)
    run = WorkspaceRun(started_at=T0)
    assert upcoming(rule, run, T0 + 55).may_extend
    kept = extend(rule, run, T0 + 55)
    coming = upcoming(rule, kept, T0 + 61)
    assert not strikes(coming, T0 + 61)
    assert coming.stops_at == T0 + 60 + HOUR
    assert not coming.may_extend
    assert strikes(upcoming(rule, kept, T0 + 60 + HOUR), T0 + 60 + HOUR)


def test_the_next_look_is_never_later_than_the_next_strike() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=60.0, busy_cap_seconds=100.0)
    busy = WorkspaceRun(started_at=T0, busy_since=T0 + 10)
    look = next_look(rule, busy, T0 + 20)
    assert look == T0 + 10 + 100 + 60
    assert strikes(upcoming(rule, busy, look), look)
