"""Cron expressions in a time zone: when scheduled work is due; pure.

Five fields as in crontab(5), names and steps included. Where a zone changes its clocks, what
Debian's cron does holds: a fixed time that does not exist that night is due as soon as the gap is
over, one that comes twice is due the first time, and a time that recurs within the hour (``*`` in
the hours or minutes) goes by the clock on the wall.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from itertools import islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

FIELDS: Final = ("minute", "hour", "day-of-month", "month", "day-of-week")
EXAMPLE: Final = "such as `30 2 * * mon-fri` (02:30 on working days)"
MOST_COUNTED: Final = 1000


class BadCron(ValueError):  # noqa: N818 - reads as the fact it states
    """A text is not a cron expression; the message names what would be right."""


class BadTimeZone(ValueError):  # noqa: N818 - reads as the fact it states
    """A text is not a time zone; the message names what would be right."""


def check(expression: str) -> None:
    """Refuse what is no cron expression of five fields, or never comes. Raises ``BadCron``."""
    if len(expression.split()) != len(FIELDS):
        raise BadCron(f"five fields ({', '.join(FIELDS)}), {EXAMPLE}")
    try:
        next(CronSim(expression.upper(), datetime(2000, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        wrong = str(error).removeprefix("Bad ").strip()
        raise BadCron(f"a {wrong} that cron knows, {EXAMPLE}") from error
    except StopIteration:
        raise BadCron(f"a time that comes: no day is like this, {EXAMPLE}") from None


@cache
def zone(name: str) -> ZoneInfo:
    """The time zone. Raises ``BadTimeZone`` with the nearest existing name."""
    if name in available_timezones():
        return ZoneInfo(name)
    by_lower = {known.lower(): known for known in available_timezones()}
    cities = {known.rpartition("/")[2].lower(): known for known in available_timezones()}
    asked = name.lower().replace(" ", "_")
    near = get_close_matches(asked, by_lower, 1, 0.8) or get_close_matches(asked, cities, 1, 0.8)
    best = by_lower.get(near[0]) or cities[near[0]] if near else "Europe/Berlin"
    raise BadTimeZone(f"a time zone of the IANA database, such as `{best}`")


def after(expression: str, time_zone: str, at: float) -> float | None:
    """The first due time after ``at`` (epoch seconds); ``None`` when there is none any more."""
    return next(_times(expression, time_zone, at), None)


def due(expression: str, time_zone: str, since: float, until: float) -> tuple[int, float | None]:
    """The number of due times from ``since`` to ``until``, both included, and the last of them.

    No more than ``MOST_COUNTED`` are counted.
    """
    times = takewhile(lambda time: time <= until, _times(expression, time_zone, since - 1))
    counted = list(islice(times, MOST_COUNTED))
    if len(counted) < MOST_COUNTED:
        return len(counted), counted[-1] if counted else None
    return MOST_COUNTED, next(_times(expression, time_zone, until + 1, backwards=True))


def first(expression: str, time_zone: str, at: float, count: int) -> list[float]:
    """The next due times after ``at``, at most ``count``."""
    return list(islice(_times(expression, time_zone, at), count))


def _times(
    expression: str, time_zone: str, at: float, *, backwards: bool = False
) -> Iterator[float]:
    start = datetime.fromtimestamp(at, UTC).astimezone(zone(time_zone))
    times = CronSim(expression.upper(), start, reverse=backwards)
    return (time.timestamp() for time in times)
