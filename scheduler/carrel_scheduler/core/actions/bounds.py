"""Proofs of "no", made before anything is tried.

Evicting everything legal gives every node its largest room, and the tasks of a workload are
identical, so a count over the nodes settles whether any set of victims could help.
"""

import numpy as np

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.room import fitting
from carrel_scheduler.core.workloads import Record


class Bounds:
    """What would fit if all legal victims together were gone.

    The room is computed once per set of victims and forgotten when a commitment changes it.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._known: dict[object, tuple[Counts, Counts]] = {}
        self._commitments = -1

    def counts(self, claimer: Record, key: object, chosen: Bools) -> Counts:
        """(N,) how many of the claimer's tasks fit at most when the tasks ``chosen`` are gone.

        Args:
            claimer: the waiting workload.
            key: names the set of victims.
            chosen: (T,) the tasks of that set.
        """
        done = len(self._cycle.evictions) + len(self._cycle.held)
        if done != self._commitments:
            self._known.clear()
            self._commitments = done
        if key not in self._known:
            rows = np.flatnonzero(chosen)
            self._known[key] = self._cycle.room.cleared(self._cycle.state.tasks, rows)
        devices, host = self._known[key]
        return fitting(claimer.shape, self._cycle.eligible(claimer.spec.nodes), devices, host)
