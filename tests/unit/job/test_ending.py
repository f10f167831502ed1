"""What a process hears of its own end."""

import sys

import pytest

from carrel.job.ending import GAVE_WAY, Ending


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Ending:
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    monkeypatch.setattr(sys, "exit", sys.exit)
    ending = Ending()
    ending.listen()
    return ending


@pytest.mark.parametrize(
    ("status", "told", "succeeded"),
    [
        (None, False, True),
        (0, False, True),
        (3, False, False),
        ("no data", False, False),
        (GAVE_WAY, False, None),
        (0, True, True),
        (3, True, None),
    ],
)
def test_who_asks_for_an_exit_code_is_heard(
    heard: Ending, status: object, told: bool, succeeded: bool | None
) -> None:
    if told:
        heard.tell()
    with pytest.raises(SystemExit) as left:
        sys.exit(status)  # type: ignore[arg-type]  # as programs call it
    assert left.value.code == status
    assert heard.succeeded() is succeeded


def test_an_exception_that_nobody_catches_is_a_failure_and_still_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda *told: shown.append(told))
    monkeypatch.setattr(sys, "exit", sys.exit)
    ending = Ending()
    for _ in range(2):
        ending.listen()
    assert ending.succeeded() is True
    error = ValueError("x")
    sys.excepthook(ValueError, error, None)
    assert shown == [(ValueError, error, None)]
    assert ending.succeeded() is False
