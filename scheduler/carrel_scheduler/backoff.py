"""Growing pauses between retries. Pure: randomness comes from outside."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
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


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between the retries of one caller, without jitter: an iterable.

    Attributes:
        first: after the first failure; doubled with each.
        longest: it grows no further.
        tries: how many pauses there are; ``None``: without end.
    """

    first: float
    longest: float
    tries: int | None = None

    def __iter__(self) -> Iterator[float]:
        """The pauses in order."""
        return map(self.after, count() if self.tries is None else range(self.tries))

    def after(self, failures: int) -> float:
        """The pause after one more failure than so many."""
        return exponential(failures, self.first, self.longest)


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
