"""Classes of failures: why an attempt failed, and whether another would fail alike; pure.

The engine reports how the task ended and the end of its output. The class of a failure follows from
these. An error of the application comes again however often it runs; a crash may not.
"""

import re
from typing import Final

from carrel_scheduler.engines.contract import TaskStatus
from carrel_schema.objects import Failure, FailureClass, LossCause, WorkloadStatus

QUICK_SECONDS: Final = 10.0
"""Two attempts in a row that ended alike within this time each failed for the same reason."""
LONGEST_CAUSE: Final = 300
NOT_STARTED: Final = frozenset({126, 127})
"""Exit codes of a command that is not there or cannot be executed."""
_TRACEBACK: Final = "Traceback (most recent call last)"
_EXCEPTION: Final = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?")
_PORT_IN_USE: Final = re.compile(
    r"address (is )?already in use|EADDRINUSE|port \d+ is (already )?in use", re.IGNORECASE
)
_FIELD: Final = re.compile(r"(task \S+: )?[a-z_]+(\[\d+\])?(\.[a-z_]+)?=")
_FOLDER: Final = "the working folder "
_OUT_OF_MEMORY: Final = "killed for memory"
_HARDWARE: Final = re.compile(
    r"CUDA error|cuda runtime error|NCCL|NVML|cuDNN error|ECC error", re.IGNORECASE
)
_GPU_FAILED: Final = re.compile(
    r"uncorrectable (?:ECC|NVLink) error|(?:ECC|NVLINK)_UNCORRECTABLE|GPU is lost"
    r"|GPU has fallen off the bus"
)
"""The errors of CUDA, NCCL and NVML where the GPU is at fault, and no program."""
_TRANSIENT: Final = re.compile(
    r"(?:\w+\.)*(?:Connect\w*|\w*Timeout\w*|BrokenPipeError|TemporaryError|RemoteDisconnected"
    r"|IncompleteRead|gaierror|DistBackendError|DistNetworkError)\b"
)
"""Exceptions about the network or the hardware, which another attempt may not meet."""
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def failure_of(task: TaskStatus, status: WorkloadStatus, now: float, error: str = "") -> Failure:
    """Describe a failed attempt.

    Args:
        task: how its task ended.
        status: of the workload, with the failure before.
        now: epoch seconds.
        error: what the platform's own program in the task said, where that ran it.
    """
    began = task.started_at or now
    ran = max(0.0, (task.ended_at or now) - began) if task.started_at else 0.0
    found = Failure(
        at=now,
        attempt=task.id.attempt,
        cls=_class_of(task, error),
        cause=error.rstrip(".") or cause_of(task),
        exit_code=task.exit_code,
        signal=task.signal,
        ran_seconds=ran,
    )
    return _same_again(found, status.last_failure)


def cause_of(task: TaskStatus) -> str:
    """The exception, or the last line of a task's output; empty without output."""
    lines = [line.strip() for line in _lines(task.last_output)]
    if _TRACEBACK in task.last_output:
        exceptions = [line for line in _lines(task.last_output) if _is_exception(line)]
        lines = exceptions or lines
    return lines[-1][:LONGEST_CAUSE] if lines else ""


def loss_of(task: TaskStatus) -> LossCause:
    """The part that was lost under a task that did not end well; empty: none that is known.

    A program may notice before a health check does that its GPU fails, and end by itself.
    """
    if task.lost or task.exit_code == 0:
        return task.loss
    return "gpu" if task.devices and _GPU_FAILED.search(task.last_output) else ""


def _lines(output: str) -> list[str]:
    """Lines of output with text, without colours; of a progress bar its last state."""
    seen = [line.rpartition("\r")[2] for line in output.replace("\r\n", "\n").split("\n")]
    clean = [_CONTROL.sub("", line).rstrip() for line in seen]
    return [line for line in clean if line.strip()]


def _is_exception(line: str) -> bool:
    return bool(_EXCEPTION.fullmatch(line)) and not line.startswith(_TRACEBACK)


def _class_of(task: TaskStatus, error: str) -> FailureClass:
    if task.lost:
        return task.loss or "lost"
    if task.message.startswith(_OUT_OF_MEMORY):
        return "memory"
    if task.exit_code is None and not task.signal:
        # It could not be started: a refusal names the field, or the folder, that is wrong.
        ours = _FIELD.match(task.message) or task.message.startswith(_FOLDER)
        return "application" if ours else "crash"
    if task.exit_code in NOT_STARTED or error:
        return "application"
    return "application" if _is_own_error(task) else "crash"


def _is_own_error(task: TaskStatus) -> bool:
    """Whether the output shows an error with which any other attempt would fail, too."""
    if task.signal or not task.exit_code:
        return False
    if _PORT_IN_USE.search(task.last_output):
        return True
    if _TRACEBACK not in task.last_output:
        return False
    cause = cause_of(task)
    return not (_TRANSIENT.match(cause) or _HARDWARE.search(cause))


def _same_again(now: Failure, before: Failure | None) -> Failure:
    """An exit that comes a second time within seconds of a start is the application's error."""
    if before is None or now.cls != "crash" or (now.exit_code is None and not now.signal):
        return now
    alike = (now.exit_code, now.signal) == (before.exit_code, before.signal)
    quick = max(now.ran_seconds, before.ran_seconds) < QUICK_SECONDS
    in_a_row = before.attempt == now.attempt - 1
    if not (alike and quick and in_a_row):
        return now
    return Failure(
        at=now.at,
        attempt=now.attempt,
        cls="application",
        cause=now.cause,
        again=True,
        exit_code=now.exit_code,
        signal=now.signal,
        ran_seconds=now.ran_seconds,
    )
