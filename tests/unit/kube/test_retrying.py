"""When a request is sent again, and when its error goes to the caller."""

import pytest

from carrel_scheduler.backoff import LONGEST_PAUSE_SECONDS, Backoff
from carrel_scheduler.kube.errors import (
    Conflict,
    KubeError,
    StatusCause,
    StatusDetails,
    TooManyRequests,
    Unavailable,
)
from carrel_scheduler.kube.sending import (
    TRIES,
    TRIES_WITHOUT_ROOM,
    Resend,
    pause_after,
)

LOST = Unavailable(0, "Unreachable", "gone")


def backoff(chance: float = 0.0) -> Backoff:
    return Backoff(lambda: chance)


def test_pauses_double_with_jitter_up_to_a_bound() -> None:
    least, most = backoff(0.0), backoff(1.0)
    assert [least.next() for _ in range(4)] == pytest.approx([0.025, 0.05, 0.1, 0.2])
    assert [most.next() for _ in range(4)] == pytest.approx([0.05, 0.1, 0.2, 0.4])
    for _ in range(100):
        assert least.next() <= LONGEST_PAUSE_SECONDS
    assert least.next() == LONGEST_PAUSE_SECONDS / 2
    least.reset()
    assert least.next() == pytest.approx(0.025)


def test_no_room_is_waited_for_as_long_as_the_server_asks() -> None:
    full = TooManyRequests(429, "TooManyRequests", "later")
    full.retry_after = 3.0
    assert pause_after(full, backoff(), Resend.UNSENT_ONLY, sent=True) == pytest.approx(3.025)
    tried = Backoff(lambda: 0.0, failures=TRIES_WITHOUT_ROOM)
    assert pause_after(full, tried, Resend.SAFE, sent=True) is None


def test_a_disruption_budget_is_an_answer() -> None:
    details = StatusDetails(causes=(StatusCause("DisruptionBudget", "needs 1", ""),))
    refused = TooManyRequests(429, "TooManyRequests", "no", details)
    assert pause_after(refused, backoff(), Resend.SAFE, sent=True) is None


@pytest.mark.parametrize(
    ("repeat", "sent", "again"),
    [
        (Resend.SAFE, True, True),
        (Resend.SAFE, False, True),
        (Resend.UNSENT_ONLY, False, True),
        (Resend.UNSENT_ONLY, True, False),
    ],
)
def test_lost_answers(repeat: Resend, sent: bool, again: bool) -> None:
    assert (pause_after(LOST, backoff(), repeat, sent=sent) is not None) is again


def test_tries_end() -> None:
    assert pause_after(LOST, Backoff(lambda: 0.0, failures=TRIES), Resend.SAFE, sent=True) is None


@pytest.mark.parametrize("error", [Conflict(409, "Conflict", ""), KubeError(405, "No", "")])
def test_answers_are_for_the_caller(error: KubeError) -> None:
    assert pause_after(error, backoff(), Resend.SAFE, sent=True) is None
