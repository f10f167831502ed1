"""Growing pauses between retries. Pure: randomness comes from outside."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0
MOST_DOUBLINGS: Final = 32

Jitter = Callable[[], float]
"""Numbers in [0, 1)."""


def exponential(
    failures: int, first: float = FIRST_PAUSE_SECONDS, longest: float = LONGEST_PAUSE_SECONDS
) -> float:
    """Seconds: ``first`` after no earlier failure, doubled with each, at most ``longest``."""
    return min(longest, first * 2.0 ** min(failures, MOST_DOUBLINGS))


@dataclass(slots=True)
class Backoff:
    """Pauses with jitter, so that those who failed together do not come back together."""

    jitter: Jitter
    first: float = FIRST_PAUSE_SECONDS
    longest: float = LONGEST_PAUSE_SECONDS
    failures: int = 0

    def next(self) -> float:
        """Seconds to wait after one more failure: between half of the step and all of it."""
        step = exponential(self.failures, self.first, self.longest)
        self.failures += 1
        return step * (0.5 + 0.5 * self.jitter())

    def reset(self) -> None:
        """Begin with the first pause again."""
        self.failures = 0
