"""A brake on guessing: after some failures for a name, that name has to wait.

Counted per name and not per address, because behind the proxy all come from one. A name is free
again by itself; a right password in time does not count what went before.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

FREE_FAILURES: Final = 5
WINDOW_SECONDS: Final = 60.0
MOST_NAMES: Final = 1000


@dataclass(slots=True)
class Throttle:
    """Failures of the last minute by name; ``clock`` in seconds, monotonic."""

    clock: Callable[[], float]
    _failures: dict[str, list[float]] = field(default_factory=dict)

    def wait_seconds(self, name: str) -> float:
        """How long this name has to wait before the next attempt; 0 when it need not."""
        recent = self._recent(name)
        if len(recent) < FREE_FAILURES:
            return 0.0
        return max(0.0, recent[-FREE_FAILURES] + WINDOW_SECONDS - self.clock())

    def failed(self, name: str) -> None:
        """Count a failure."""
        if name not in self._failures and len(self._failures) >= MOST_NAMES:
            self._failures.pop(next(iter(self._failures)))
        self._failures[name] = [*self._recent(name), self.clock()]

    def succeeded(self, name: str) -> None:
        """Forget this name's failures."""
        self._failures.pop(name, None)

    def _recent(self, name: str) -> list[float]:
        start = self.clock() - WINDOW_SECONDS
        return [at for at in self._failures.get(name, []) if at > start]
