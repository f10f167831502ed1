"""When the reconciler runs again: timers, rests after long work, the periodic resync, clock skew.

Times are the wall clock's, so that they mean something after a restart. When the clock is set back,
everything that waits for a time moves with it: it would otherwise wait as much longer.
"""

import heapq
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.lifecycle.outcomes import loss_pause_seconds, pause_seconds

log = logging.getLogger(__name__)
REST: Final = 3.0
LONGEST_SECONDS: Final = 1.0
RESYNC_SECONDS: Final = 15.0
TOLERATED_SECONDS: Final = 1.0


class Timers:
    """Workloads to look at again, by time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """How many are set."""
        return len(self._heap)

    def set(self, when: float, uid: str) -> None:
        """Look at a workload at that time, epoch seconds."""
        heapq.heappush(self._heap, (when, uid))

    def take_due(self, now: float) -> list[str]:
        """Remove the timers that are due; returns their uids in order."""
        due: set[str] = set()
        while self._heap and self._heap[0][0] <= now:
            due.add(heapq.heappop(self._heap)[1])
        return sorted(due)

    @property
    def due_at(self) -> float | None:
        """When the next one is due."""
        return self._heap[0][0] if self._heap else None

    def set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        self._heap = [(when - seconds, uid) for when, uid in self._heap]


class Pacing:
    """Rests after long work, so that requests, which share the thread, are answered.

    With thousands in the queue a decision takes tens of milliseconds, and a burst of submissions
    would ask for one every few; deciding on many at once costs as much as on one. Short work is
    followed by rests too short to notice.

    Args:
        clock: seconds; it may be set back without harm.
        rest: how many times as long as the work the rest is.
    """

    def __init__(self, clock: Callable[[], float], rest: float = REST) -> None:
        self._clock, self._rest = clock, rest
        self._since = self._until = -math.inf
        self._put_off = False

    @property
    def due_at(self) -> float | None:
        """When work that was put off falls due; ``None`` when none was."""
        return self._until if self._put_off else None

    def put_off(self, now: float) -> bool:
        """Whether work that is wanted now has to wait until ``due_at``."""
        self._put_off = self._since <= now < self._until
        return self._put_off

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Work within; the rest that follows is a few times as long."""
        began = self._clock()
        yield
        self._since = self._clock()
        rest = min(LONGEST_SECONDS, self._rest * max(0.0, self._since - began))
        self._until = self._since + rest


class Resync:
    """When to decide again though nothing has happened.

    Delays, minimum run times, patience and the grace of broken gangs follow the clock: as long as
    somebody waits, it is decided again now and then on an unchanged state.

    Attributes:
        due_at: epoch seconds; ``None`` while nobody waits.
    """

    def __init__(self) -> None:
        self.due_at: float | None = None

    def decided(self, now: float, *, waiting: bool) -> None:
        """There was a decision; ``waiting``: whether it left anybody without what it asks for."""
        self.due_at = now + RESYNC_SECONDS if waiting else None

    def due(self, now: float) -> bool:
        """Whether it is time."""
        return self.due_at is not None and self.due_at <= now

    def set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        if self.due_at is not None:
            self.due_at -= seconds


class ClockSkew:
    """Notices that the clock was set back."""

    def __init__(self) -> None:
        self._latest: float | None = None

    def measure(self, now: float) -> float:
        """By how many seconds it was set back since the last call, else 0."""
        latest, self._latest = self._latest, now
        if latest is None or latest - now <= TOLERATED_SECONDS:
            return 0.0
        back = latest - now
        log.warning("the clock was set back by %.0f s: pauses and limits move with it", back)
        return back


def set_back(entry: CachedWorkload, seconds: float) -> None:
    """Move the times that a workload waits for."""
    status = entry.workload.status
    if status.not_before is not None:
        status.not_before -= seconds
    if entry.gone_by is not None:
        entry.gone_by -= seconds
    if entry.meet_until is not None:
        entry.meet_until -= seconds
    if entry.claim_until is not None:
        entry.claim_until -= seconds
    entry.hear_until -= seconds
    entry.look_at -= seconds


def limit_pause(entry: CachedWorkload, now: float) -> None:
    """After a restart: no pause is longer than the failures so far ask for."""
    status = entry.workload.status
    if status.not_before is not None:
        longest = max(pause_seconds(status.failures), loss_pause_seconds(status.losses))
        status.not_before = min(status.not_before, now + longest)
