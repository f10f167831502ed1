"""When a request is sent again, and after which pause. Pure: chance comes from outside.

* 429 is always sent again, after the pause that the server asks for: nothing was done. But a
  PodDisruptionBudget's is an answer, not a want of room, and goes to the caller.
* No answer, or 5xx: what only reads, and what may be done twice without harm, is sent again. Other
  writes only if they did not leave this process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from carrel_scheduler.kube.errors import BUDGET_CAUSE, KubeError, TooManyRequests, Unavailable

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0
TRIES: Final = 5
TRIES_WITHOUT_ROOM: Final = 12

Chance = Callable[[], float]
"""Numbers in [0, 1)."""


class Repeat(Enum):
    """Whether a request may be sent again when its answer is lost."""

    SAFE = "safe"
    UNSENT_ONLY = "unsent_only"


@dataclass(slots=True)
class Backoff:
    """Growing pauses with jitter, so that those who failed together do not come back together."""

    chance: Chance
    first: float = FIRST_PAUSE_SECONDS
    longest: float = LONGEST_PAUSE_SECONDS
    failures: int = 0

    def next(self) -> float:
        """Seconds to wait after one more failure: between half of the step and all of it."""
        step: float = min(self.longest, self.first * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return step * (0.5 + 0.5 * self.chance())

    def reset(self) -> None:
        """It works again."""
        self.failures = 0


def pause_after(error: KubeError, backoff: Backoff, repeat: Repeat, *, sent: bool) -> float | None:
    """Seconds until the next try, or ``None`` when the error goes to the caller.

    Args:
        error: what the request met.
        backoff: of this request; counts its failures.
        repeat: whether it may be done twice.
        sent: it may have reached the server.
    """
    if isinstance(error, TooManyRequests):
        if _is_budget(error) or backoff.failures >= TRIES_WITHOUT_ROOM:
            return None
        return error.retry_after + backoff.next()  # not all who were told so at the same moment
    if not isinstance(error, Unavailable) or backoff.failures >= TRIES:
        return None
    if sent and repeat is Repeat.UNSENT_ONLY:
        return None
    return error.details.retry_after_seconds + backoff.next()


def _is_budget(error: TooManyRequests) -> bool:
    return any(cause.reason == BUDGET_CAUSE for cause in error.details.causes or ())
