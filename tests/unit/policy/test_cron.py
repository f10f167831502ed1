"""Cron expressions in time zones: what is refused, and when clocks change."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from carrel_scheduler.policy import cron

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    """Berlin's clock on the wall."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def times(expression: str, since: str, count: int) -> list[str]:
    found = cron.first(expression, "Europe/Berlin", at(since), count)
    return [datetime.fromtimestamp(time, BERLIN).strftime("%d. %H:%M %Z") for time in found]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("@daily", "five fields"),
        ("61 * * * *", "a minute that cron knows"),
        ("0 24 * * *", "a hour that cron knows"),
        ("0 0 32 * *", "a day-of-month that cron knows"),
        ("0 0 31 2 *", "a day-of-month that cron knows"),
        ("0 0 * 13 *", "a month that cron knows"),
        ("0 0 * * 8", "a day-of-week that cron knows"),
        ("*/0 * * * *", "a minute that cron knows"),
    ],
)
def test_what_is_no_cron_expression(expression: str, words: str) -> None:
    with pytest.raises(cron.BadCron) as refusal:
        cron.check(expression)
    assert str(refusal.value).startswith(words)
    assert "30 2 * * mon-fri" in str(refusal.value)


@pytest.mark.parametrize("expression", ["* * * * *", "*/5 8-18 * * mon-fri", "0 0 29 2 *"])
def test_what_cron_knows(expression: str) -> None:
    cron.check(expression)


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("Europe/Brlin", "Europe/Berlin"),
        ("berlin", "Europe/Berlin"),
        ("europe/london", "Europe/London"),
        ("New York", "America/New_York"),
    ],
)
def test_an_unknown_time_zone_names_the_nearest(name: str, best: str) -> None:
    with pytest.raises(cron.BadTimeZone) as refusal:
        cron.zone(name)
    assert f"`{best}`" in str(refusal.value)


def test_a_time_that_a_night_does_not_have_is_due_when_the_gap_is_over() -> None:
    found = times("30 2 * * *", "2026-03-28T12:00", 2)
    assert found == ["29. 03:00 CEST", "30. 02:30 CEST"]


def test_a_time_that_a_night_has_twice_is_due_once() -> None:
    found = times("30 2 * * *", "2026-10-24T12:00", 2)
    assert found == ["25. 02:30 CEST", "26. 02:30 CET"]


def test_what_recurs_every_hour_recurs_in_the_hour_that_comes_twice() -> None:
    found = times("30 * * * *", "2026-10-25T01:00", 4)
    assert found == ["25. 01:30 CEST", "25. 02:30 CEST", "25. 02:30 CET", "25. 03:30 CET"]


def test_due_times_count_both_ends() -> None:
    noon = at("2026-06-01T12:00")
    assert cron.due("0 * * * *", "Europe/Berlin", noon, noon + 7200.0) == (3, noon + 7200.0)
    assert cron.due("0 * * * *", "Europe/Berlin", noon + 1, noon + 3599.0) == (0, None)


def test_of_very_many_the_last_is_known_without_counting_all() -> None:
    noon = at("2026-06-01T12:00")
    year = noon + 365 * 86_400.0
    count, last = cron.due("* * * * *", "UTC", noon, year)
    assert (count, last) == (cron.MOST_COUNTED, year)
