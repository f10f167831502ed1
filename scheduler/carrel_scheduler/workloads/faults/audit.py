"""The core's invariants in production: one after the other, in a small share of the loop's time.

Each run checks one invariant and is followed by a pause so much longer that all of it is at most a
hundredth of the time. An invariant that takes long, in a very large cluster, is left out from then
on, and the others go on. A violation is logged once, counted, and shown by ``/ready`` until a later
run finds it gone. It ends nothing: scheduling goes on.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.invariants.columns import BOOKS
from carrel_scheduler.core.invariants.state import STATE_INVARIANTS, Invariant

log = logging.getLogger(__name__)

REST: Final = 100.0
LEAST_REST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 0.1
MOST_LOGGED: Final = 5


def free_room_is_not_negative(state: Columns) -> list[str]:
    """No capacity is allocated twice, by the kept sums; quick in any cluster."""
    free = state.nodes.free
    below = np.flatnonzero((free.devices < 0).any(axis=0))
    return [f"{state.nodes.names[slot]} has negative free capacity" for slot in below.tolist()]


INVARIANTS: Final[tuple[Invariant, ...]] = (free_room_is_not_negative, *STATE_INVARIANTS, *BOOKS)


class StateAudit:
    """See the module.

    Args:
        clock: seconds.
        invariants: what is checked, in turns.

    Attributes:
        due_at: when the next one is to be checked.
    """

    def __init__(
        self, clock: Callable[[], float], invariants: Sequence[Invariant] = INVARIANTS
    ) -> None:
        self._clock, self._invariants = clock, list(invariants)
        self._next = 0
        self.due_at = -math.inf
        self._counts = Counter({invariant.__name__: 0 for invariant in invariants})
        self._violated: dict[str, list[str]] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of checks that found each invariant violated, with those that never were."""
        return self._counts

    @property
    def violated(self) -> Mapping[str, Sequence[str]]:
        """The violations that the last checks found, by invariant."""
        return self._violated

    def look(self, state: Columns) -> None:
        """Check the next invariant."""
        if not self._invariants:
            return
        began = self._clock()
        self._next %= len(self._invariants)
        invariant = self._invariants[self._next]
        self._note(invariant.__name__, self._checked(invariant, state))
        took = max(0.0, self._clock() - began)
        if took <= MOST_SECONDS:
            self._next += 1
        else:
            del self._invariants[self._next]
            log.info("invariant %s took %.2f s and is no longer checked", invariant.__name__, took)
        self.due_at = began + max(LEAST_REST_SECONDS, REST * took)

    def clock_set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        self.due_at -= seconds

    def _note(self, name: str, found: list[str]) -> None:
        before = self._violated.pop(name, None)
        if not found:
            return
        self._counts[name] += 1
        self._violated[name] = found
        if before is None:
            told = "; ".join(found[:MOST_LOGGED])
            log.error("invariant %s is violated %d times: %s", name, len(found), ascii(told))

    def _checked(self, invariant: Invariant, state: Columns) -> list[str]:
        try:
            return invariant(state)
        except Exception as error:
            if invariant.__name__ not in self._violated:
                log.exception("invariant %s could not be checked", invariant.__name__)
            return [f"could not be checked: {type(error).__name__}"]
