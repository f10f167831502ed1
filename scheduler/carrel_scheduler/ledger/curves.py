"""How long curves stay small: every ``stride``-th value of all that ever arrived, and the last.

When more than ``MOST`` values would be kept the stride doubles and every other one goes, so the
old part of a curve is as dense as the new one, and the first value is never lost. Pure.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from carrel_scheduler.ledger.errors import InvalidArgument

T = TypeVar("T")
MOST: Final = 2000


class Curve(NamedTuple):
    """How many values have arrived, and which of them are kept."""

    received: int = 0
    stride: int = 1

    @property
    def kept(self) -> int:
        """How many are kept."""
        if not self.received:
            return 0
        last = self.received - 1
        return last // self.stride + 1 + bool(last % self.stride)

    def keeps(self, ordinal: int) -> bool:
        """Whether the value that arrived as number ``ordinal`` (from 0) is kept."""
        return ordinal % self.stride == 0 or ordinal == self.received - 1

    def after(self, arrivals: int, most: int = MOST) -> "Curve":
        """The curve when so many more values have arrived."""
        grown = Curve(self.received + arrivals, self.stride)
        while grown.kept > most:
            grown = Curve(grown.received, grown.stride * 2)
        return grown


def thinned(points: Sequence[T], most: int) -> Sequence[T]:
    """At most so many points, evenly spaced, the first and the last among them.

    One point is the last one. Raises ``InvalidArgument`` below 1.
    """
    if most < 1:
        raise InvalidArgument("max_points", most, "at least 1")
    if len(points) <= most:
        return points
    if most == 1:
        return points[-1:]
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]
