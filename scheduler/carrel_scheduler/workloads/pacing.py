"""After a long decision the loop rests, so that whoever asks meanwhile is answered.

Decisions and requests share one thread. With thousands in the queue a decision takes tens of
milliseconds, and a burst of submissions would ask for one every few; deciding on many at once costs
as much as on one. Short decisions are followed by rests too short to notice.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

REST: Final = 3.0
LONGEST_SECONDS: Final = 1.0


class Pacing:
    """When to decide again. ``clock`` gives seconds; it may be set back without harm."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = self._until = -math.inf
        self._put_off = False

    @property
    def due_at(self) -> float | None:
        """When a decision that was put off falls due; ``None`` when none was."""
        return self._until if self._put_off else None

    def put_off(self, now: float) -> bool:
        """Whether a decision that is wanted now has to wait until ``due_at``."""
        self._put_off = self._since <= now < self._until
        return self._put_off

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Decide within; the rest that follows is a few times as long."""
        began = self._clock()
        yield
        self._since = self._clock()
        rest = min(LONGEST_SECONDS, REST * max(0.0, self._since - began))
        self._until = self._since + rest
