"""When heartbeats are due, in virtual time."""

from carrel.workspace.reporter import PostTimer


def test_first_at_once_then_regularly() -> None:
    pace = PostTimer(interval=10)
    assert pace.due_at(5) == 5
    pace.posted(5)
    pace.succeeded()
    assert pace.due_at(6) == 15


def test_change_is_told_soon_and_a_burst_once() -> None:
    pace = PostTimer(interval=10, debounce=0.5)
    pace.posted(0)
    pace.succeeded()
    pace.changed(2)
    pace.changed(2.4)
    assert pace.due_at(2.4) == 2.5
    pace.posted(2.5)
    assert pace.due_at(2.5) == 12.5


def test_change_just_before_a_regular_post_does_not_delay_it() -> None:
    pace = PostTimer(interval=10, debounce=0.5)
    pace.posted(0)
    pace.changed(9.8)
    assert pace.due_at(9.8) == 10


def test_failures_stretch_the_interval_up_to_a_bound() -> None:
    pace = PostTimer(interval=10, longest_wait=60)
    waits = []
    for _ in range(5):
        pace.posted(0)
        pace.failed()
        waits.append(pace.due_at(0))
    assert waits == [20, 40, 60, 60, 60]
    pace.changed(1)  # a scheduler that is away is not asked more often for it
    assert pace.due_at(1) == 60
    pace.posted(60)
    pace.succeeded()
    assert pace.due_at(60) == 70
