"""Why an attempt failed: what comes again however often it runs, and what may not."""

import msgspec
import pytest

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.workloads.launch.builtin_programs import retries
from carrel_scheduler.workloads.lifecycle.failures import cause_of, failure_of
from carrel_scheduler.workloads.lifecycle.outcomes import outcome
from carrel_schema.objects import WorkloadSpec, WorkloadStatus
from carrel_schema.sections import Retries

TRACEBACK = """epoch 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    step()
{}
"""


def failed(
    last_output: str = "",
    exit_code: int | None = 1,
    *,
    signal: int = 0,
    message: str = "",
    lost: bool = False,
) -> TaskStatus:
    return TaskStatus(
        id=TaskId("u", 0, 0),
        phase=TaskPhase.ENDED,
        node="n",
        started_at=10.0,
        ended_at=12.0,
        exit_code=exit_code,
        signal=signal,
        message=message,
        last_output=last_output,
        lost=lost,
    )


@pytest.mark.parametrize(
    ("task", "cls", "cause"),
    [
        (failed(TRACEBACK.format("NameError: name 'x'")), "application", "NameError: name 'x'"),
        (
            failed(TRACEBACK.format("lab.BadShape: 3 != 4\n  hint: look at the data")),
            "application",
            "lab.BadShape: 3 != 4",
        ),
        (failed("OSError: [Errno 98] Address already in use"), "application", None),
        (failed("", 127, message="trian.py: command not found"), "application", ""),
        (failed("sh: 1: trian: not found\n", 127), "application", "sh: 1: trian: not found"),
        (failed("", None, message="task u-0-0: volumes='/x': not there"), "application", ""),
        (failed("", None, message="the working folder /x cannot be entered"), "application", ""),
        (failed("", None, message="no process for a supervisor"), "crash", ""),
        (failed("", None, signal=9, message="killed for memory: more than 2 GiB"), "memory", ""),
        (failed("", None, lost=True, message="nobody saw how it ended"), "lost", ""),
        (failed("loss 1\rloss 2\n\x1b[31mbad\x1b[0m\n\n", 3), "crash", "bad"),
        (failed("10 %\r20 %", 3), "crash", "20 %"),
        (failed(TRACEBACK.format("ConnectionResetError: peer")), "crash", None),
        (failed(TRACEBACK.format("requests.exceptions.ReadTimeout: 30 s")), "crash", None),
        (failed(TRACEBACK.format("RuntimeError: CUDA error: ECC")), "crash", None),
        (failed(TRACEBACK.format("NameError: x"), None, signal=11), "crash", None),
    ],
)
def test_the_class_and_the_cause_of_a_failure(
    task: TaskStatus, cls: str, cause: str | None
) -> None:
    found = failure_of(task, WorkloadStatus(phase="running"), 12.0)
    assert found.cls == cls
    assert cause is None or found.cause == cause
    assert found.ran_seconds == 2.0


def test_a_cause_is_short() -> None:
    assert len(cause_of(failed("x" * 2000))) == 300


def test_an_error_of_the_application_fails_at_once_and_is_told() -> None:
    task = failed(TRACEBACK.format("ZeroDivisionError: division by zero"))
    result = outcome(WorkloadSpec(), WorkloadStatus(phase="running"), [task], 12.0)
    assert result.phase == "failed"
    assert result.reason is not None
    assert result.reason.sentence == (
        "Failed: ZeroDivisionError: division by zero (exit code 1). "
        "It is not run again: it would fail in the same way."
    )


def test_a_crash_is_retried_and_says_so() -> None:
    result = outcome(WorkloadSpec(), WorkloadStatus(phase="running"), [failed("bad\n", 3)], 12.0)
    assert (result.phase, result.not_before) == ("pending", 17.0)
    assert result.reason is not None
    assert result.reason.sentence == (
        "Crashed: bad (exit code 3). This was attempt 1 of 7; the next one begins after 5 s."
    )


@pytest.mark.parametrize(
    ("asked", "phase"),
    [
        (WorkloadSpec(retries=Retries(application=1)), "pending"),
        (WorkloadSpec(retries=Retries(crash=5)), "failed"),
        (WorkloadSpec(retries=Retries(application=1), restart_policy="never"), "failed"),
        (WorkloadSpec(retries=retries(None, 3)), "pending"),
        (WorkloadSpec(retries=retries(Retries(application=0), 3)), "failed"),
        (WorkloadSpec(retries=retries(None, 0)), "failed"),
    ],
)
def test_retries_that_are_asked_for_come_first(asked: WorkloadSpec, phase: str) -> None:
    task = failed(TRACEBACK.format("NameError: x"))
    assert outcome(asked, WorkloadStatus(phase="running"), [task], 12.0).phase == phase


ECC = TRACEBACK.format("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")


@pytest.mark.parametrize(
    ("output", "devices", "spec", "found"),
    [
        (ECC, (0,), WorkloadSpec(), ("pending", 1)),
        ("NVML: GPU is lost", (0,), WorkloadSpec(), ("pending", 1)),
        (ECC, (0,), WorkloadSpec(retries=Retries(gpu=0)), ("failed", 1)),
        (ECC, (0,), WorkloadSpec(restart_policy="never"), ("failed", 0)),
        (ECC, (), WorkloadSpec(backoff_limit=0), ("failed", 0)),
        ("RuntimeError: CUDA error: illegal address", (0,), WorkloadSpec(), ("pending", 0)),
    ],
)
def test_a_gpu_that_fails_under_a_program_is_no_failure_of_the_program(
    output: str, devices: tuple[int, ...], spec: WorkloadSpec, found: tuple[str, int]
) -> None:
    task = msgspec.structs.replace(failed(output), devices=devices)
    result = outcome(spec, WorkloadStatus(phase="running"), [task], 12.0)
    assert (result.phase, result.losses) == found


def test_losses_have_a_limit_of_their_own() -> None:
    spec, status = WorkloadSpec(retries=Retries(lost=1)), WorkloadStatus(phase="running", losses=1)
    assert outcome(spec, status, [failed("", None, lost=True)], 12.0).phase == "failed"
