"""A thread of a job that works off what was put, so that whoever puts is never held up.

Items that wait are joined to one and given to ``work`` together, an interval after the first of
them. What could not be done now is joined with what came since and tried again, with growing
pauses. The thread starts with the first item and ends with the process, or when ``work`` gives up.
"""

import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Generic, TypeVar

T = TypeVar("T")
LONGEST_PAUSE_SECONDS: Final = 15.0
URGENT_PAUSE_SECONDS: Final = 0.2


class BackgroundOutcome(Enum):
    """The result of the work."""

    DONE = auto()
    LATER = auto()
    """The item is tried again."""
    NEVER = auto()
    """Give up: whatever waits or comes later is dropped."""


class BackgroundWork(Generic[T]):
    """See the module.

    Args:
        name: of the thread.
        join: makes one item of an earlier and a later one; may change the earlier.
        work: done in the thread; an exception gives up.
        interval: seconds between two turns.
    """

    def __init__(
        self,
        name: str,
        join: Callable[[T, T], T],
        work: Callable[[T], BackgroundOutcome],
        interval: float,
    ) -> None:
        self._name, self._join, self._work, self._interval = name, join, work, interval
        self._changed = threading.Condition()
        self._waiting: T | None = None
        self._working = self._stopped = self._urgent = False
        self._thread: threading.Thread | None = None

    def put(self, item: T) -> None:
        """Queue an item; returns at once."""
        with self._changed:
            if self._stopped:
                return
            self._waiting = item if self._waiting is None else self._join(self._waiting, item)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait until nothing waits, at most ``seconds``."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting is None and not self._working, seconds)
            self._urgent = False

    @property
    def gave_up(self) -> bool:
        """Whether all further items are dropped."""
        return self._stopped

    def _run(self) -> None:
        pause = 0.0
        while (item := self._next(pause)) is not None:
            outcome = BackgroundOutcome.NEVER
            try:
                outcome = self._work(item)
            finally:
                self._worked(item, outcome)
            again = outcome is BackgroundOutcome.LATER
            pause = min(max(2 * pause, 1.0), LONGEST_PAUSE_SECONDS) if again else 0.0

    def _next(self, pause: float) -> T | None:
        """Wait for items, then return all of them; none once the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._waiting is not None)
            self._changed.wait_for(lambda: self._stopped or self._urgent, self._interval + pause)
            item, self._waiting = self._waiting, None
            self._working = item is not None
            return item

    def _worked(self, item: T, outcome: BackgroundOutcome) -> None:
        with self._changed:
            self._working, self._stopped = False, outcome is BackgroundOutcome.NEVER
            if self._stopped:
                self._waiting = None
            elif outcome is BackgroundOutcome.LATER:
                self._waiting = item if self._waiting is None else self._join(item, self._waiting)
            self._changed.notify_all()
            if outcome is BackgroundOutcome.LATER and self._urgent:
                self._changed.wait(URGENT_PAUSE_SECONDS)
