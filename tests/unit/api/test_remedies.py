"""Answers about what would unblock waiting work take a bounded part of the scheduler's time."""

from contextlib import suppress

import pytest

from carrel_scheduler.api.principals.identity import USE, Principal
from carrel_scheduler.api.problems import TooMany
from carrel_scheduler.api.services.remedies import BURST_SECONDS, SHARE, Remedies
from carrel_schema.wire import Remedy


def person(name: str) -> Principal:
    return Principal(name, "user", frozenset(), frozenset({USE}))


class Scheduler:
    """Answers in a time that the test says."""

    def __init__(self, seconds: float) -> None:
        self.now, self.timer, self.seconds = 1000.0, 0.0, seconds
        self.asked: list[str] = []

    def find(self, uid: str) -> list[Remedy]:
        self.timer += self.seconds
        self.asked.append(uid)
        return [Remedy(change="preemptible")]


def test_all_together_take_no_more_than_their_part_of_the_time() -> None:
    slow = Scheduler(0.25)
    remedies = Remedies(slow.find, lambda: slow.now, lambda: slow.timer)
    made = 0
    for second in range(600):
        slow.now += 1.0
        with suppress(TooMany):
            remedies.of(f"uid{second}", person(f"person{second}"))
            made += 1
    most = SHARE * 600 + BURST_SECONDS + slow.seconds
    assert SHARE * 600 <= made * slow.seconds <= most


def test_an_old_answer_is_given_while_no_new_one_is_made() -> None:
    slow = Scheduler(BURST_SECONDS + 3.0)
    remedies = Remedies(slow.find, lambda: slow.now, lambda: slow.timer)
    first = remedies.of("uid1", person("ada"))
    slow.now += 20.0
    assert remedies.of("uid1", person("ada")) == first
    with pytest.raises(TooMany) as refused:
        remedies.of("uid2", person("bea"))
    assert refused.value.headers["Retry-After"] == "10"
    slow.now += 10.0
    assert remedies.of("uid2", person("bea"))
    assert slow.asked == ["uid1", "uid2"]


def test_what_fails_is_paid_for_and_not_kept() -> None:
    slow = Scheduler(0.25)

    def fails(uid: str) -> list[Remedy]:
        slow.find(uid)
        raise RuntimeError("no answer")

    remedies = Remedies(fails, lambda: slow.now, lambda: slow.timer)
    for _ in range(5):
        with pytest.raises(RuntimeError):
            remedies.of("uid1", person("ada"))
    with pytest.raises(TooMany):
        remedies.of("uid1", person("ada"))
    assert slow.asked == ["uid1"] * 5
