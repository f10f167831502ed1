"""How long servers took to begin their answers, lately: counted in steps of a fifth.

Counts of several gateways can be added up, which medians cannot; whoever reads them finds any
quantile, a tenth too high or too low at most.
"""

import math
from typing import Final

WINDOW_SECONDS: Final = 60.0
_LEAST: Final = 0.0002
_STEP: Final = 1.2
_LOG: Final = math.log(_STEP)
# Up to a quarter of an hour; what takes longer counts as that.
_STEPS: Final = 84


class Latencies:
    """Of one place, over the last minute: what is older than half a window goes at its turn."""

    __slots__ = ("_before", "_counts", "_since")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._since = -math.inf

    def took(self, now: float, seconds: float) -> None:
        """An answer began."""
        self._turn(now)
        step = 0 if seconds <= _LEAST else min(int(math.log(seconds / _LEAST) / _LOG) + 1, _STEPS)
        self._counts[step] = self._counts.get(step, 0) + 1

    def lately(self, now: float) -> list[tuple[float, int]]:
        """Seconds in the middle of each step, and how many answers took about as long."""
        self._turn(now)
        steps = sorted(self._counts.keys() | self._before.keys())
        return [
            (float(f"{_LEAST * _STEP ** (step - 0.5):.3g}"), self._count(step)) for step in steps
        ]

    def _count(self, step: int) -> int:
        return self._counts.get(step, 0) + self._before.get(step, 0)

    def _turn(self, now: float) -> None:
        if now < self._since + WINDOW_SECONDS / 2:
            return
        stale = now >= self._since + WINDOW_SECONDS
        self._before = {} if stale else self._counts
        self._counts, self._since = {}, now
