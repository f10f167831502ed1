"""What is told of how long answers took: of the last minute, a tenth too much or too little."""

import pytest

from carrel_hub.gateway.load_reports import LatencyHistogram


@pytest.mark.parametrize("seconds", [0.0003, 0.01, 0.125, 3.0, 299.0])
def test_a_latency_is_told_within_a_tenth(seconds: float) -> None:
    known = LatencyHistogram()
    known.observe(1000.0, seconds)
    [(told, count)] = known.recent(1000.0)
    assert told == pytest.approx(seconds, rel=0.1)
    assert count == 1


def test_what_is_longer_than_all_steps_or_shorter_is_counted_still() -> None:
    known = LatencyHistogram()
    known.observe(1000.0, 0.0)
    known.observe(1000.0, 1e6)
    assert [count for _, count in known.recent(1000.0)] == [1, 1]


def test_only_the_last_minute_counts() -> None:
    known = LatencyHistogram()
    known.observe(1000.0, 0.01)
    known.observe(1031.0, 0.02)
    assert sum(count for _, count in known.recent(1059.0)) == 2
    assert sum(count for _, count in known.recent(1062.0)) == 1
    assert known.recent(1200.0) == []
