"""Limits of workspaces and trainings: time limit, idle timeout, busy cap, extension."""

import msgspec

from carrel_scheduler.workloads.lifecycle.session_limits import (
    IDLE,
    TIME_LIMIT,
    LimitedRun,
    applies_to_running,
    extend,
    next_look,
    rule_for,
    strikes,
    upcoming,
)
from carrel_schema.objects import (
    InteractiveLimits,
    ProjectSpec,
    Resources,
    StayRule,
    TrainingLimits,
    WorkloadSpec,
    WorkloadStatus,
)

HOUR = 3600.0
T0 = 1_000_000.0


def test_without_rules_nothing_is_coming() -> None:
    limits = upcoming(InteractiveLimits(), LimitedRun(started_at=T0), T0 + 99 * HOUR)
    assert limits.stops_at is None
    assert next_look(InteractiveLimits(), LimitedRun(started_at=T0), T0) is None


def test_time_limit_strikes_at_its_second_and_warns_before() -> None:
    rule = InteractiveLimits(time_limit_seconds=60.0, warn_before_seconds=10.0)
    run = LimitedRun(started_at=T0)
    coming = upcoming(rule, run, T0 + 1)
    assert (coming.stops_at, coming.stops_because, coming.warn_at) == (T0 + 60, TIME_LIMIT, T0 + 50)
    assert not strikes(upcoming(rule, run, T0 + 59.9), T0 + 59.9)
    assert strikes(upcoming(rule, run, T0 + 60), T0 + 60)


def test_idle_timeout_counts_from_the_last_input() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=120.0)
    run = LimitedRun(started_at=T0, last_input_at=T0 + 30)
    assert not strikes(upcoming(rule, run, T0 + 149), T0 + 149)
    coming = upcoming(rule, run, T0 + 150)
    assert strikes(coming, T0 + 150)
    assert coming.stops_because == IDLE
    assert coming.idle_since == T0 + 30


def test_one_second_of_gpu_work_at_119_s_resets_the_idle_clock() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=120.0)
    quiet = LimitedRun(started_at=T0)
    assert strikes(upcoming(rule, quiet, T0 + 120), T0 + 120)
    worked = LimitedRun(started_at=T0, gpu_active_at=T0 + 119)
    assert not strikes(upcoming(rule, worked, T0 + 120), T0 + 120)
    assert strikes(upcoming(rule, worked, T0 + 239), T0 + 239)


def test_a_silent_computing_cell_is_active_until_the_cap() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=60.0, busy_cap_seconds=HOUR)
    run = LimitedRun(started_at=T0, last_input_at=T0 + 5, busy_since=T0 + 5)
    during = upcoming(rule, run, T0 + HOUR / 2)
    assert during.stops_at is None
    assert during.idle_since is None
    beyond = T0 + 5 + HOUR + 60
    assert not strikes(upcoming(rule, run, beyond - 1), beyond - 1)
    assert strikes(upcoming(rule, run, beyond), beyond)


def test_without_a_cap_a_busy_kernel_never_idles() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=60.0, busy_cap_seconds=None)
    run = LimitedRun(started_at=T0, busy_since=T0)
    assert upcoming(rule, run, T0 + 1000 * HOUR).stops_at is None


def test_a_workspace_that_never_told_anything_idles_from_its_start() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=60.0)
    assert strikes(upcoming(rule, LimitedRun(started_at=T0), T0 + 60), T0 + 60)


def test_the_earlier_of_both_limits_is_told() -> None:
    rule = InteractiveLimits(time_limit_seconds=100.0, idle_timeout_seconds=30.0)
    run = LimitedRun(started_at=T0, last_input_at=T0 + 80)
    assert upcoming(rule, run, T0 + 81).stops_because == TIME_LIMIT
    early = LimitedRun(started_at=T0, last_input_at=T0 + 10)
    assert upcoming(rule, early, T0 + 20).stops_because == IDLE


def test_extension_moves_the_coming_stop_and_is_counted() -> None:
    rule = InteractiveLimits(time_limit_seconds=60.0, extend_seconds=HOUR, max_extensions=1)
    run = LimitedRun(started_at=T0)
    assert upcoming(rule, run, T0 + 55).may_extend
    kept = extend(rule, run, T0 + 55)
    coming = upcoming(rule, kept, T0 + 61)
    assert not strikes(coming, T0 + 61)
    assert coming.stops_at == T0 + 60 + HOUR
    assert not coming.may_extend
    assert strikes(upcoming(rule, kept, T0 + 60 + HOUR), T0 + 60 + HOUR)


def test_the_next_look_comes_before_the_stop_and_then_at_it() -> None:
    rule = InteractiveLimits(idle_timeout_seconds=60.0, busy_cap_seconds=100.0)
    busy = LimitedRun(started_at=T0, busy_since=T0 + 10)
    early = next_look(rule, busy, T0 + 20)
    assert early == T0 + 10 + 100 + 30
    assert upcoming(rule, busy, early).stops_because == IDLE
    look = next_look(rule, busy, early)
    assert look == T0 + 10 + 100 + 60
    assert strikes(upcoming(rule, busy, look), look)


def test_a_worker_with_a_far_time_limit_is_looked_at_for_idleness() -> None:
    rule = StayRule(idle_timeout_seconds=60.0, time_limit_seconds=100 * HOUR)
    working = LimitedRun(started_at=T0, gpu_active_at=T0 + 500)
    assert next_look(rule, working, T0 + 500) == T0 + 530
    assert next_look(rule, working, T0 + 510) == T0 + 560
    ending = StayRule(idle_timeout_seconds=60.0, time_limit_seconds=505.0)
    assert next_look(ending, working, T0 + 500) == T0 + 505


def test_each_kind_of_work_has_the_rule_of_its_project() -> None:
    project = ProjectSpec(
        interactive=InteractiveLimits(idle_timeout_seconds=60.0, apply_to_running=True),
        training=TrainingLimits(idle_gpu_seconds=120.0, time_limit_seconds=HOUR),
    )
    workspace = WorkloadSpec(kind="workspace")
    on_gpus = WorkloadSpec(resources=Resources(gpu_milli=500))
    without = WorkloadSpec(resources=Resources(gpu_milli=0))
    assert rule_for(project, workspace) == project.interactive
    rule = rule_for(project, on_gpus)
    assert (rule.idle_timeout_seconds, rule.time_limit_seconds) == (120.0, HOUR)
    assert rule.max_extensions == 0
    rule = rule_for(project, without)
    assert (rule.idle_timeout_seconds, rule.time_limit_seconds) == (None, HOUR)
    assert applies_to_running(project, workspace)
    assert not applies_to_running(project, on_gpus)


def test_rows_from_before_limits_of_trainings_are_read() -> None:
    old = b'{"interactive": {"idle_timeout_seconds": 60.0, "apply_to_running": true}}'
    assert msgspec.json.decode(old, type=ProjectSpec).training == TrainingLimits()
    kept = b'{"rule": {"idle_timeout_seconds": 60.0, "apply_to_running": true}}'
    rule = msgspec.json.decode(kept, type=WorkloadStatus).rule
    assert rule == StayRule(idle_timeout_seconds=60.0)
