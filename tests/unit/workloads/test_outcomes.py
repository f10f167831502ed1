"""Where a workload goes when its tasks have ended."""

import pytest

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.workloads.lifecycle.outcomes import (
    LOSSES_AT_MOST,
    STEADY_SECONDS,
    outcome,
    pause_seconds,
)
from carrel_scheduler.workloads.state.phases import (
    AT_REST,
    FINAL,
    HOLDING,
    TRANSITIONS,
    IllegalTransition,
)
from carrel_schema.objects import (
    LossCause,
    Preemption,
    ReasonInfo,
    WorkloadSpec,
    WorkloadStatus,
)
from carrel_schema.sections import Retries
from unit.workloads.harness import SchedulerHarness


def ended(
    exit_code: int | None = 0,
    *,
    signal: int = 0,
    lost: bool = False,
    loss: LossCause = "",
    message: str = "",
) -> TaskStatus:
    return TaskStatus(
        id=TaskId("u", 0, 0),
        phase=TaskPhase.ENDED,
        node="n",
        exit_code=exit_code,
        signal=signal,
        lost=lost,
        loss=loss,
        message=message,
    )


def test_exit_code_zero_is_success() -> None:
    result = outcome(WorkloadSpec(), WorkloadStatus(phase="running"), [ended()], 100.0)
    assert (result.phase, result.failure) == ("succeeded", None)


def test_a_failure_is_tried_again_after_a_pause_that_doubles() -> None:
    spec = WorkloadSpec(backoff_limit=2)
    first = outcome(spec, WorkloadStatus(phase="running"), [ended(1)], 100.0)
    assert (first.phase, first.not_before) == ("pending", 105.0)
    assert first.failure is not None
    second = outcome(spec, WorkloadStatus(phase="running", failures=1), [ended(1)], 100.0)
    assert second.not_before == 110.0
    assert pause_seconds(50) == 300.0


def test_beyond_the_back_off_limit_it_failed_and_says_how() -> None:
    spec = WorkloadSpec(backoff_limit=1)
    status = WorkloadStatus(phase="running", failures=1)
    result = outcome(spec, status, [ended(None, signal=9, message="killed: out of memory")], 0.0)
    assert result.phase == "failed"
    assert result.reason is not None
    assert "out of memory" in result.reason.sentence


def test_restart_policy_never_fails_at_once() -> None:
    spec = WorkloadSpec(restart_policy="never")
    assert outcome(spec, WorkloadStatus(phase="running"), [ended(3)], 0.0).phase == "failed"


def test_a_preempted_training_waits_again_without_counting_a_failure() -> None:
    reason = ReasonInfo(token="Reclaimed")
    status = WorkloadStatus(phase="preempting", reason=reason)
    result = outcome(WorkloadSpec(), status, [ended(143)], 0.0)
    assert (result.phase, result.failure, result.reason) == ("pending", None, reason)


def test_a_training_that_finishes_while_giving_way_is_done() -> None:
    assert outcome(WorkloadSpec(), WorkloadStatus(phase="preempting"), [ended()], 0.0).phase == (
        "succeeded"
    )


def test_a_stopping_workload_stops_for_its_reason_even_with_exit_code_zero() -> None:
    reason = ReasonInfo(token="Suspended")
    status = WorkloadStatus(phase="stopping", reason=reason)
    result = outcome(WorkloadSpec(), status, [ended()], 0.0)
    assert (result.phase, result.reason) == ("stopped", reason)


def test_a_lost_task_runs_again_without_counting_a_failure() -> None:
    result = outcome(WorkloadSpec(), WorkloadStatus(phase="running"), [ended(None, lost=True)], 0.0)
    assert (result.phase, result.failure, result.not_before) == ("pending", None, None)


def test_losses_in_a_row_are_tried_again_ever_later_and_not_for_ever() -> None:
    status, pauses = WorkloadStatus(phase="running", started_at=90.0), []
    while True:
        result = outcome(WorkloadSpec(), status, [ended(None, lost=True)], 100.0)
        status.losses = result.losses
        if result.phase == "failed":
            break
        pauses.append((result.not_before or 100.0) - 100.0)
    assert pauses[:5] == [0.0, 5.0, 10.0, 20.0, 40.0]
    assert pauses[-1] == 300.0
    assert len(pauses) == LOSSES_AT_MOST
    assert result.failure is None
    assert result.reason is not None
    assert result.reason.token == "LostTooOften"


@pytest.mark.parametrize(
    ("retries", "loss", "lost_before", "phase"),
    [
        (Retries(gpu=1), "gpu", 0, "pending"),
        (Retries(gpu=1), "gpu", 1, "failed"),
        (Retries(gpu=1), "node", 1, "pending"),
        (Retries(gpu=0), "gpu", 0, "failed"),
        (Retries(node=2, lost=0), "node", 1, "pending"),
        (Retries(lost=0), "node", 0, "failed"),
        (Retries(gpu=0, node=0), "", 3, "pending"),
    ],
)
def test_losses_of_a_gpu_and_of_a_node_have_limits_of_their_own(
    retries: Retries, loss: LossCause, lost_before: int, phase: str
) -> None:
    status = WorkloadStatus(phase="running", started_at=90.0, losses=lost_before)
    task = ended(None, lost=True, loss=loss)
    result = outcome(WorkloadSpec(retries=retries), status, [task], 100.0)
    assert result.phase == phase
    assert result.failure is None


@pytest.mark.parametrize(
    ("task", "node"),
    [
        (ended(139), "n"),
        (ended(None, lost=True, loss="gpu"), "n"),
        (ended(127), ""),
        (ended(137, message="killed for memory"), ""),
        (ended(0), ""),
    ],
)
def test_a_node_is_avoided_after_what_another_node_may_not_do(task: TaskStatus, node: str) -> None:
    result = outcome(WorkloadSpec(), WorkloadStatus(phase="running"), [task], 0.0)
    assert result.failed_node == node


def test_what_ran_for_long_before_it_was_lost_counts_anew() -> None:
    status = WorkloadStatus(phase="running", started_at=0.0, losses=40)
    result = outcome(WorkloadSpec(), status, [ended(None, lost=True)], STEADY_SECONDS)
    assert (result.phase, result.losses, result.not_before) == ("pending", 1, None)


def test_a_workspace_that_ends_is_stopped_and_can_be_started_again() -> None:
    spec = WorkloadSpec(kind="workspace")
    result = outcome(spec, WorkloadStatus(phase="running"), [ended(1)], 0.0)
    assert result.phase == "stopped"
    assert result.reason is not None
    assert result.reason.token == "WorkspaceEnded"


@pytest.mark.parametrize(
    ("rule", "token", "to"),
    [("reclaim", "Reclaimed", "`speech`"), ("preempt", "Preempted", "its own project")],
)
def test_a_workspace_that_gave_way_is_stopped_and_says_to_whom(
    rule: str, token: str, to: str
) -> None:
    last = Preemption(at=1.0, rule=rule, for_project="speech", for_workload="x")
    status = WorkloadStatus(phase="preempting", last_preemption=last)
    result = outcome(WorkloadSpec(kind="workspace"), status, [ended(143)], 0.0)
    assert (result.phase, result.failure, result.not_before) == ("stopped", None, None)
    assert result.reason is not None
    assert (result.reason.token, result.reason.cls) == (token, "stopped")
    assert to in result.reason.sentence
    assert "Start it again" in result.reason.help


def test_one_failed_member_fails_the_gang() -> None:
    spec = WorkloadSpec(tasks=2, backoff_limit=0)
    result = outcome(spec, WorkloadStatus(phase="running"), [ended(0), ended(7)], 0.0)
    assert result.phase == "failed"


def test_the_table_is_closed_and_every_phase_can_reach_an_end() -> None:
    for old, allowed in TRANSITIONS.items():
        assert allowed <= set(TRANSITIONS)
        assert (not allowed) == (old in FINAL)
    assert HOLDING | AT_REST | {"pending"} == set(TRANSITIONS)


async def test_what_the_table_does_not_have_is_refused_with_both_phases(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    entry = harness.loop.cache.get(await harness.submit("vision", "train-1", 5))
    assert entry is not None
    changes = harness.loop.begin()
    with pytest.raises(IllegalTransition, match="pending -> running"):
        changes.move(entry, "running")
    assert (entry.workload.status.phase, changes.transitions) == ("pending", [])
