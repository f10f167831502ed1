"""How a process is going to exit."""

import sys

import pytest

from carrel.job.task import PREEMPTED, ProcessExit


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> ProcessExit:
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    monkeypatch.setattr(sys, "exit", sys.exit)
    ending = ProcessExit()
    ending.watch()
    return ending


@pytest.mark.parametrize(
    ("status", "preempted", "succeeded"),
    [
        (None, False, True),
        (0, False, True),
        (3, False, False),
        ("no data", False, False),
        (PREEMPTED, False, None),
        (0, True, True),
        (3, True, None),
    ],
)
def test_who_asks_for_an_exit_code_is_heard(
    heard: ProcessExit, status: object, preempted: bool, succeeded: bool | None
) -> None:
    if preempted:
        heard.preempted()
    with pytest.raises(SystemExit) as left:
        sys.exit(status)  # type: ignore[arg-type]  # as programs call it
    assert left.value.code == status
    assert heard.succeeded() is succeeded


def test_an_exception_that_nobody_catches_is_a_failure_and_still_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *preempted: shown.append(preempted))
    monkeypatch.setattr(sys, "exit", sys.exit)
    ending = ProcessExit()
    for _ in range(2):
        ending.watch()
    assert ending.succeeded() is True
    error = ValueError("x")
    sys.excepthook(ValueError, error, None)
    assert shown == [(ValueError, error, None)]
    assert ending.succeeded() is False
