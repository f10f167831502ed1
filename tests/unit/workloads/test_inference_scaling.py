"""From nothing to many replicas and back to nothing, in virtual time."""

from carrel_scheduler.workloads.controllers.inference.plan import Demand, Low, Scale, scaled
from carrel_schema.sections import InferenceSpec

SPEC = InferenceSpec(min_replicas=0, max_replicas=4, in_flight_per_replica=2, idle_seconds=100.0)


class Clock:
    """An endpoint whose demand is given to the scaling, second by second."""

    def __init__(self, spec: InferenceSpec = SPEC, wanted: int = -1) -> None:
        self.spec, self.now, self.last = spec, 1000.0, None
        self.scale = Scale(wanted)

    def play(self, in_flight: int, seconds: float = 0.0) -> int:
        """This many requests at once for so long; the number of replicas at the end."""
        end = self.now + seconds
        while True:
            if in_flight:
                self.last = self.now
            demand = Demand(in_flight, self.last)
            self.scale = scaled(self.spec, self.scale.wanted, demand, self.scale.low, self.now)
            if self.now >= end:
                return self.scale.wanted
            self.now += 1.0

    last: float | None


def test_it_begins_with_one_that_proves_itself_even_if_it_may_have_none() -> None:
    assert Clock().play(0) == 1
    assert Clock().play(7) == 4
    assert Clock(InferenceSpec(min_replicas=2, max_replicas=3)).play(0) == 2


def test_up_at_once_and_never_beyond_the_bounds() -> None:
    clock = Clock(wanted=1)
    assert [clock.play(number) for number in (2, 3, 8, 9, 100)] == [1, 2, 4, 4, 4]


def test_down_to_what_was_needed_lately_only_after_the_idle_time() -> None:
    clock = Clock(wanted=4)
    assert clock.play(3, seconds=50) == 4
    assert clock.play(1, seconds=49) == 4
    assert clock.play(1, seconds=3) == 2
    assert clock.play(1, seconds=101) == 1


def test_a_moment_of_load_begins_the_idle_time_anew() -> None:
    clock = Clock(wanted=2)
    clock.play(1, seconds=90)
    assert clock.play(4) == 2
    assert clock.play(1, seconds=90) == 2
    assert clock.play(1, seconds=15) == 1


def test_the_last_one_goes_when_no_request_has_come_for_as_long_and_comes_back_at_once() -> None:
    clock = Clock(wanted=1)
    clock.play(1)
    assert clock.play(0, seconds=99) == 1
    assert clock.play(0, seconds=3) == 0
    assert clock.play(0, seconds=500) == 0
    assert clock.play(1) == 1


def test_requests_too_short_to_be_seen_keep_the_last_one() -> None:
    clock = Clock(wanted=1)
    for _ in range(5):
        clock.last = clock.now
        assert clock.play(0, seconds=90) == 1
    assert clock.play(0, seconds=120) == 0


def test_it_says_when_the_answer_may_change_by_itself() -> None:
    assert scaled(SPEC, 2, Demand(1), Low(1000.0, 1), 1010.0).again_at == 1100.0
    assert scaled(SPEC, 1, Demand(1), None, 1010.0).again_at is None


def test_other_bounds_hold_at_once() -> None:
    narrow = InferenceSpec(min_replicas=1, max_replicas=2)
    assert scaled(narrow, 4, Demand(100), None, 0.0).wanted == 2
    wide = InferenceSpec(min_replicas=3, max_replicas=8)
    assert scaled(wide, 1, Demand(0), None, 0.0).wanted == 3
