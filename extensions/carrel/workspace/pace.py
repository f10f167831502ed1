"""When to tell the scheduler: regularly, at once when busy changes, more slowly when it is away.

Pure: times are given.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """Decides when the next post is due. All times in seconds of one clock.

    Attributes:
        interval: between posts when all is quiet.
        debounce: a change of busy waits so long, so that a burst of short cells is one post.
        longest_wait: the most that failures stretch the interval to.
    """

    interval: float = 10.0
    debounce: float = 0.5
    longest_wait: float = 60.0
    _posted_at: float | None = None
    _changed_at: float | None = None
    _failures: int = 0

    def changed(self, now: float) -> None:
        """Busy became idle or the other way round."""
        if self._changed_at is None:
            self._changed_at = now

    def due_at(self, now: float) -> float:
        """The earliest time of the next post."""
        if self._posted_at is None:
            return now
        if self._failures:
            wait = min(self.interval * float(2 ** min(self._failures, 8)), self.longest_wait)
            return self._posted_at + max(wait, self.interval)
        regular = self._posted_at + self.interval
        if self._changed_at is None:
            return regular
        return min(regular, self._changed_at + self.debounce)

    def posted(self, now: float) -> None:
        """A post begins; it carries every change seen so far."""
        self._posted_at = now
        self._changed_at = None

    def succeeded(self) -> None:
        """The scheduler answered."""
        self._failures = 0

    def failed(self) -> None:
        """The scheduler did not answer, or refused."""
        self._failures += 1
