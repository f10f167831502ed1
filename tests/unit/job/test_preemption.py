"""SIGTERM tells a job of its preemption; when to save."""

import signal
import threading
from types import FrameType

import pytest

from carrel.job import checkpoint


class Clock:
    """The monotonic clock under control."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("carrel.job.checkpoint.time.monotonic", clock.monotonic)
    return clock


def test_sigterm_is_noticed_and_the_process_lives() -> None:
    assert checkpoint.preempted() is False
    signal.raise_signal(signal.SIGTERM)
    assert checkpoint.preempted() is True


def test_callbacks_run_in_order_and_one_that_fails_keeps_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[str] = []
    checkpoint.on_preempt(lambda: seen.append("first"))
    checkpoint.on_preempt(lambda: 1 / 0)
    checkpoint.on_preempt(lambda: seen.append("last"))
    signal.raise_signal(signal.SIGTERM)
    assert seen == ["first", "last"]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_former_handler_is_called_too() -> None:
    seen: list[int] = []

    def former(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGTERM, former)
    try:
        checkpoint.preempted()
        signal.raise_signal(signal.SIGTERM)
    finally:
        checkpoint.uninstall()
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]


def test_first_asked_in_another_thread_is_a_clear_error() -> None:
    errors: list[RuntimeError] = []

    def ask() -> None:
        try:
            checkpoint.preempted()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


def test_later_any_thread_may_ask() -> None:
    checkpoint.preempted()
    signal.raise_signal(signal.SIGTERM)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(checkpoint.preempted()))
    thread.start()
    thread.join()
    assert answers == [True]


def test_leaving_is_not_success() -> None:
    with pytest.raises(SystemExit) as left:
        checkpoint.exit_for_preemption()
    assert left.value.code == 143


def test_it_is_time_to_save_when_the_span_has_passed(clock: Clock) -> None:
    assert checkpoint.every(30) is False
    clock.now += 29.9
    assert checkpoint.every(30) is False
    clock.now += 0.2
    assert checkpoint.every(30) is True
    assert checkpoint.every(30) is False


def test_the_submission_chooses_the_pace(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARREL_CHECKPOINT_EVERY", "5")
    checkpoint.every(30)
    clock.now += 6
    assert checkpoint.every(30) is True


def test_when_preempted_it_is_time_at_once_and_once(clock: Clock) -> None:
    checkpoint.every(30)
    signal.raise_signal(signal.SIGTERM)
    assert checkpoint.every(30) is True
    assert checkpoint.every(30) is False


def test_saving_by_itself_begins_the_span_anew(clock: Clock, tmp_path: object) -> None:
    checkpoint.every(30)
    clock.now += 29
    checkpoint.save("x", step=1, directory=str(tmp_path))
    clock.now += 2
    assert checkpoint.every(30) is False
