"""The standings of a cycle as columns, for questions about all waiting rows at once.

Shares and rules hold for the whole cycle and become columns once; what is held follows the queues
that were touched when it is asked for.
"""

from functools import cached_property

import numpy as np

from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.queues.queues import QueueColumns
from carrel_scheduler.core.queues.standings import Standings


class StandingColumns:
    """(Q, 3) columns of one cycle's standings. Do not change them."""

    def __init__(self, standings: Standings, queues: QueueColumns) -> None:
        """``standings`` of these queues, as nothing has changed them yet."""
        self._standings = standings
        self._used = queues.used + queues.promised
        self._fixed = queues.fixed + queues.promised_fixed
        standings.touched.clear()

    @cached_property
    def fair(self) -> Counts:
        """Fair shares."""
        fair = self._standings.fair
        return _column([fair[slot] for slot in range(len(fair))])

    @cached_property
    def kept(self) -> Counts:
        """What queues keep against a claimer within its quota."""
        return np.minimum(_column(self._standings.allocatable), self._standings.table.quotas)

    @property
    def used(self) -> Counts:
        """Held or promised, by all work."""
        self._follow()
        return self._used

    @property
    def fixed(self) -> Counts:
        """Held or promised, by non-preemptible work."""
        self._follow()
        return self._fixed

    def _follow(self) -> None:
        standings = self._standings
        if standings.touched:
            slots = list(standings.touched)
            standings.touched.clear()
            self._used[slots] = [standings.used[slot] for slot in slots]
            self._fixed[slots] = [standings.fixed[slot] for slot in slots]


def _column(rows: "list[list[int]] | list[tuple[int, int, int]]") -> Counts:
    return np.array(rows, np.int64).reshape(-1, 3)
