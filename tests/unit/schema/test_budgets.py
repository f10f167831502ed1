"""Periods of budgets are those of the calendar."""

from datetime import UTC, datetime

import pytest

from carrel_schema.governance.costs import Period, began_at

NOW = datetime(2026, 11, 26, 23, 5, tzinfo=UTC).timestamp()  # a Thursday


@pytest.mark.parametrize(
    ("period", "began"),
    [
        ("week", datetime(2026, 11, 23, tzinfo=UTC)),
        ("month", datetime(2026, 11, 1, tzinfo=UTC)),
        ("quarter", datetime(2026, 10, 1, tzinfo=UTC)),
        ("year", datetime(2026, 1, 1, tzinfo=UTC)),
        ("sliding-week", datetime(2026, 11, 19, 23, 5, tzinfo=UTC)),
        ("total", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_period_begins(period: Period, began: datetime) -> None:
    assert began_at(period, NOW) == began.timestamp()
