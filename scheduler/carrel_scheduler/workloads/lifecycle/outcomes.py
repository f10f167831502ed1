"""The decision about a workload when all tasks of its present attempt have ended: pure.

While preempting or stopping, an exit code 0 still means that the work is done (the field's
convention: 0 is done, anything else asks to be run again).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import TaskStatus
from carrel_scheduler.workloads.lifecycle.failures import cause_of, failure_of, loss_of
from carrel_scheduler.workloads.state import failure_reasons, reasons, shape
from carrel_scheduler.workloads.state.failure_reasons import GANG_LOST
from carrel_schema.objects import (
    Failure,
    FailureClass,
    Phase,
    ReasonInfo,
    WorkloadSpec,
    WorkloadStatus,
)

PAUSES = Pauses(5.0, 300.0)
LOSSES_AT_MOST = 50
"""The number of losses in a row after which the workload fails: some hours of tries."""
STEADY_SECONDS = 600.0
"""The length of a run after which the next loss counts as the first."""
APPLICATION_RETRIES = 0
"""The retries of application errors: another attempt would fail alike."""
ELSEWHERE_SECONDS = 1.0
"""The pause before it asks for another place, so that changes of the last one are known."""


DRAIN, EVICT = "drain", "evict"
"""What a preemption by another part of the cluster is called in the ledger: its node is being
emptied, or anything else."""


@dataclass(frozen=True, slots=True)
class NextPhase:
    """The next phase, why, and for another attempt not before which instant.

    ``losses``: as many attempts in a row were lost. ``failure``: what counts against the back-off
    limit. ``failed_node``: where another attempt might fail alike; ``failed_devices``: on which
    GPUs, as ``NODE/INDEX``.
    """

    phase: Phase
    reason: ReasonInfo | None = None
    failure: Failure | None = None
    losses: int = 0
    not_before: float | None = None
    failed_node: str = ""
    failed_devices: tuple[str, ...] = ()


def pause_seconds(failures: int) -> float:
    """Back-off after so many failures: 5 s, doubled each time, at most 5 min."""
    return PAUSES.after(max(failures - 1, 0))


def loss_pause_seconds(losses: int) -> float:
    """The pause after losses in a row: none after the first, then as after failures."""
    return pause_seconds(losses - 1) if losses > 1 else 0.0


def outcome(
    spec: WorkloadSpec, status: WorkloadStatus, ended: Sequence[TaskStatus], now: float
) -> NextPhase:
    """The phase and reason of a workload whose tasks have all ended.

    Args:
        spec: what was asked for.
        status: the status so far; its phase is one that holds resources.
        ended: how each task ended.
        now: epoch seconds.
    """
    if status.phase == "stopping":
        return NextPhase("stopped", status.reason)
    if spec.kind == "workspace":
        return _workspace(status, ended)
    broken = status.reason if status.reason and status.reason.token == GANG_LOST else None
    if broken is None and _is_done(spec, ended) and spec.restart_policy != "always":
        return NextPhase("succeeded")
    if status.phase == "preempting":
        return _evicted(spec, status, now)
    worst = _worst(ended, broken)
    named = broken is None or broken.data.get("index") is not None
    how, lost = how_task_ended(spec, worst), worst.lost
    loss = loss_of(worst) if named else ""
    if broken is not None:
        data = broken.data
        how, lost, loss = data["how"], data["lost"], data.get("loss") or loss
    said = ""
    if broken is None and worst.exit_code and status.notebook is not None:
        said = status.notebook.error  # by the program that ran its cells
    if any(task.misplaced for task in ended):
        return NextPhase(
            "pending", failure_reasons.not_begun(how), not_before=now + ELSEWHERE_SECONDS
        )
    if lost or (loss and spec.restart_policy != "never"):
        lost = True
        result = _loss(spec, status, how, loss or "lost", now)
    else:
        failure = failure_of(worst, status, now, said)
        if broken is not None and broken.data.get("stalled"):
            failure = msgspec.structs.replace(failure, cls="stalled", cause=how, again=False)
        result = _failure(spec, status, failure, said.rstrip(".") or how, now)
        lost = failure.cls == "crash"
    return _blaming(result, worst if lost and named else None, broken)


def _blaming(result: NextPhase, worst: TaskStatus | None, broken: ReasonInfo | None) -> NextPhase:
    """The outcome with where it failed: the GPUs that were found at fault, else those of a task."""
    devices = tuple(broken.data.get("devices", ())) if broken is not None else ()
    if devices:
        return replace(result, failed_node=devices[0].rpartition("/")[0], failed_devices=devices)
    if worst is None:
        return result
    devices = tuple(f"{worst.node}/{device}" for device in worst.devices)
    return replace(result, failed_node=worst.node, failed_devices=devices)


def _worst(ended: Sequence[TaskStatus], broken: ReasonInfo | None) -> TaskStatus:
    """The failed task for which the others ended, else the first that failed."""
    first = broken.data.get("index") if broken is not None else None
    named = (task for task in ended if task.id.index == first)
    failed = (task for task in ended if task.exit_code != 0)
    return next(named, None) or next(failed, None) or ended[0]


def retry_limit(spec: WorkloadSpec, cls: FailureClass) -> int:
    """The number of failures of a class that are followed by another attempt."""
    asked: int | None = None if spec.retries is None else getattr(spec.retries, cls)
    if asked is not None:
        return asked
    if cls in ("gpu", "node"):
        return retry_limit(spec, "lost")
    usual = {"application": APPLICATION_RETRIES, "lost": LOSSES_AT_MOST}
    return usual.get(cls, spec.backoff_limit)


def _evicted(spec: WorkloadSpec, status: WorkloadStatus, now: float) -> NextPhase:
    """The outcome of a preemption; one by the drain of its node is a loss of the class node."""
    last, reason = status.last_preemption, status.reason
    if last is None or last.rule != DRAIN or reason is None:
        return NextPhase("pending", reason)
    result = _loss(spec, status, reason.sentence.rstrip("."), "node", now)
    return result if result.phase == "failed" else replace(result, reason=reason)


def _loss(
    spec: WorkloadSpec, status: WorkloadStatus, how: str, cls: FailureClass, now: float
) -> NextPhase:
    """The outcome of a loss: another attempt, after a pause that grows while losses go on."""
    began = status.started_at if status.started_at is not None else now
    losses = 1 if now - began >= STEADY_SECONDS else status.losses + 1
    if losses > retry_limit(spec, cls):
        reason = failure_reasons.lost_too_often(how, losses)
        return NextPhase("failed", reason, losses=losses)
    pause = loss_pause_seconds(losses)
    again = now + pause if pause else None
    return NextPhase("pending", failure_reasons.lost(how, pause), losses=losses, not_before=again)


def how_task_ended(spec: WorkloadSpec, task: TaskStatus) -> str:
    """The end of a task in words; for a gang also which task it was."""
    how = failure_reasons.how_it_ended(task.exit_code, task.signal, task.message, cause_of(task))
    return failure_reasons.member_ended(task.id.index, how) if spec.tasks > 1 else how


def _is_done(spec: WorkloadSpec, ended: Sequence[TaskStatus]) -> bool:
    """Whether the work is done: all tasks ended well, or the one that the others were there for."""
    if shape.is_mpi(spec):
        return any(task.id.index == 0 and task.exit_code == 0 for task in ended)
    return all(task.exit_code == 0 for task in ended)


def _workspace(status: WorkloadStatus, ended: Sequence[TaskStatus]) -> NextPhase:
    """The outcome of a workspace: stopped, however it ended, because its processes are gone.

    Starting it again without its owner would allocate resources that nobody uses.
    """
    if status.phase == "preempting" and status.last_preemption is not None:
        return NextPhase("stopped", reasons.workspace_gave_way(status.last_preemption))
    last = ended[0]
    return NextPhase(
        "stopped", failure_reasons.workspace_ended(last.exit_code, last.signal, last.message)
    )


def _failure(
    spec: WorkloadSpec, status: WorkloadStatus, failure: Failure, how: str, now: float
) -> NextPhase:
    failures = status.failures + 1
    limit = retry_limit(spec, failure.cls)
    if spec.restart_policy == "never" or failures > limit:
        reason = failure_reasons.failed(how, failures, limit, spec.restart_policy, failure)
        return NextPhase("failed", reason, failure)
    pause = pause_seconds(failures)
    reason = failure_reasons.back_off(how, failures, limit, pause, stalled=failure.cls == "stalled")
    return NextPhase("pending", reason, failure, not_before=now + pause)
