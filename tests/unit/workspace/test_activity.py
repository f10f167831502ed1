"""The rule of idleness, in virtual time."""

import pytest

from carrel.workspace.activity import ActivityTracker
from carrel.workspace.watchers import record_message

EXECUTE = {"msg_type": "execute_request", "msg_id": "r1"}


def status(tracker: ActivityTracker, state: str, parent: dict[str, str], at: float) -> None:
    record_message(tracker, "k1", "status", parent, {"execution_state": state}, at)


def test_untouched_tab_is_idle() -> None:
    tracker = ActivityTracker(last_input_at=100.0)
    tracker.kernel_appeared("k1")
    reading = tracker.reading(500.0, terminals=1)
    assert (reading.busy_since, reading.last_input_at) == (None, 100.0)
    assert (reading.kernels, reading.terminals, reading.at) == (1, 1, 500.0)


def test_silent_computing_cell_is_busy_since_its_start() -> None:
    tracker = ActivityTracker()
    status(tracker, "busy", EXECUTE, 10.0)
    record_message(tracker, "k1", "execute_input", EXECUTE, {}, 10.0)
    assert tracker.reading(5000.0, 0).busy_since == 10.0


def test_end_of_a_computation_starts_idle_time_anew() -> None:
    tracker = ActivityTracker()
    status(tracker, "busy", EXECUTE, 10.0)
    record_message(tracker, "k1", "execute_input", EXECUTE, {}, 10.0)
    status(tracker, "idle", EXECUTE, 900.0)
    reading = tracker.reading(1000.0, 0)
    assert (reading.busy_since, reading.last_input_at) == (None, 900.0)


@pytest.mark.parametrize(
    "kind", ["comm_msg", "comm_open", "kernel_info_request", "complete_request"]
)
def test_traffic_of_widgets_and_pages_is_nothing(kind: str) -> None:
    tracker = ActivityTracker(last_input_at=1.0)
    status(tracker, "busy", {"msg_type": kind, "msg_id": "c"}, 50.0)
    assert tracker.reading(60.0, 0).busy_since is None
    status(tracker, "idle", {"msg_type": kind, "msg_id": "c"}, 70.0)
    assert tracker.reading(80.0, 0).last_input_at == 1.0


def test_widget_traffic_does_not_end_a_computation() -> None:
    tracker = ActivityTracker()
    status(tracker, "busy", EXECUTE, 10.0)
    status(tracker, "idle", {"msg_type": "comm_msg", "msg_id": "c"}, 20.0)
    assert tracker.reading(30.0, 0).busy_since == 10.0


def test_silent_request_of_a_helper_is_busy_but_no_input() -> None:
    tracker = ActivityTracker(last_input_at=1.0)
    status(tracker, "busy", EXECUTE, 10.0)
    assert tracker.reading(11.0, 0).busy_since == 10.0
    status(tracker, "idle", EXECUTE, 12.0)
    assert tracker.reading(13.0, 0).last_input_at == 1.0


def test_busy_lasts_while_any_kernel_is() -> None:
    tracker = ActivityTracker()
    tracker.execution_started("k1", "a", 10.0)
    tracker.execution_started("k2", "b", 20.0)
    tracker.execution_ended("k1", "a", 30.0)
    assert tracker.busy_since == 10.0
    tracker.execution_ended("k2", "b", 40.0)
    assert tracker.busy_since is None


def test_ended_kernel_computes_no_more() -> None:
    tracker = ActivityTracker()
    tracker.execution_started("k1", "a", 10.0)
    tracker.kernel_gone("k1")
    assert tracker.reading(20.0, 0) == ActivityTracker().reading(20.0, 0)


def test_restart_loses_the_computation_and_is_input() -> None:
    tracker = ActivityTracker()
    tracker.execution_started("k1", "a", 10.0)
    record_message(tracker, "k1", "status", {}, {"execution_state": "starting"}, 15.0)
    assert (tracker.busy_since, tracker.last_input_at) == (None, 15.0)


def test_late_news_does_not_turn_input_back() -> None:
    tracker = ActivityTracker(last_input_at=50.0)
    tracker.input_seen(40.0)
    assert tracker.last_input_at == 50.0
