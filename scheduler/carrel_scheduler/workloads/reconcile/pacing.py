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
    """When to work again.

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
