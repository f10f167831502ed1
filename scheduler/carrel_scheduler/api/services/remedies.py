"""Answers what would unblock waiting work, at a bounded price: each answer costs some decisions.

An answer is fresh for ten seconds. A new one is made unless its caller has had too many in this
minute, or all of them have taken more than their part of the scheduler's time; an answer up to a
minute old is given then, or else none.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

from carrel_scheduler.api import problems
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_schema.wire import Remedy

FRESH_SECONDS: Final = 10.0
KEPT_SECONDS: Final = 60.0
MOST_KEPT: Final = 4096
WINDOW_SECONDS: Final = 60.0
PER_PERSON: Final = 20
"""New answers for one person in a window."""
MOST_PEOPLE: Final = 10_000
SHARE: Final = 0.1
"""The part of the scheduler's time that all answers together may take in the long run."""
BURST_SECONDS: Final = 1.0
"""Decisions that may be made at once, after a time without."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer, and when it was made."""

    at: float
    found: tuple[Remedy, ...]


@dataclass(slots=True)
class _Window:
    """New answers for one person."""

    ends_at: float
    answers: int = 0


class Remedies:
    """Answers, kept and counted.

    Args:
        find: the changes that would unblock a workload, by its uid.
        clock: epoch seconds.
        timer: seconds; how long an answer takes.
    """

    def __init__(
        self,
        find: Callable[[str], Sequence[Remedy]],
        clock: Callable[[], float],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._find, self._clock, self._timer = find, clock, timer
        self._known: TTLCache[str, _Known] = TTLCache(MOST_KEPT, KEPT_SECONDS, timer=clock)
        self._windows: TTLCache[str, _Window] = TTLCache(MOST_PEOPLE, WINDOW_SECONDS, timer=clock)
        self._spent, self._spent_at = 0.0, clock()

    def of(self, uid: str, person: Principal) -> tuple[Remedy, ...]:
        """The changes that would unblock a workload, with all names. Raises ``TooMany``."""
        now, known = self._clock(), self._known.get(uid)
        if known is not None and now - known.at < FRESH_SECONDS:
            return known.found
        window = self._windows.setdefault(
            f"{person.kind}:{person.name}", _Window(now + WINDOW_SECONDS)
        )
        wait = max(
            window.ends_at - now if window.answers >= PER_PERSON else 0.0, self._until_allowed(now)
        )
        if wait <= 0:
            window.answers += 1
            return self._new(uid, now)
        if known is not None:
            return known.found
        raise problems.TooMany(
            Code.TOO_MANY_REQUESTS,
            "Each such answer takes some of the scheduler's time, and enough were made just now",
            headers={"Retry-After": str(math.ceil(wait))},
        )

    def _new(self, uid: str, now: float) -> tuple[Remedy, ...]:
        began = self._timer()
        try:
            found = tuple(self._find(uid))
        finally:
            self._spent += self._timer() - began
        self._known[uid] = _Known(now, found)
        return found

    def _until_allowed(self, now: float) -> float:
        """Seconds until all answers together have taken no more than their part of the time."""
        self._spent = max(0.0, self._spent - SHARE * max(0.0, now - self._spent_at))
        self._spent_at = now
        return (self._spent - BURST_SECONDS) / SHARE
