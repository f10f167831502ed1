"""Proofs of "no", made before anything is tried.

Evicting everything legal gives every node its largest room, and the tasks of a workload are
identical, so a count over the nodes settles whether any set of victims could help.
"""

import numpy as np

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.room import fitting
from carrel_scheduler.core.workloads import Record


class Cleared:
    """The room of every node without a set of victims, up to a commitment of the cycle."""

    __slots__ = ("devices", "host", "seen")

    def __init__(self, nodes: int) -> None:
        self.devices: Counts = np.zeros(nodes, np.int64)
        self.host: Counts = np.zeros((2, nodes), np.int64)
        self.seen = -1


class Bounds:
    """What would fit if all legal victims together were gone.

    The room is computed once per set of victims; later only for nodes that a commitment changed.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._known: dict[object, Cleared] = {}

    def counts(self, claimer: Record, key: object, chosen: Bools) -> Counts:
        """(N,) how many of the claimer's tasks fit at most when the tasks ``chosen`` are gone.

        Args:
            claimer: the waiting workload.
            key: names the set of victims.
            chosen: (T,) the tasks of that set.
        """
        if key not in self._known:
            self._known[key] = Cleared(len(self._cycle.state.nodes.schedulable))
        cleared = self._known[key]
        self._refresh(cleared, chosen)
        eligible = self._cycle.eligible(claimer.spec.nodes)
        return fitting(claimer.shape, eligible, cleared.devices, cleared.host)

    def _refresh(self, cleared: Cleared, chosen: Bools) -> None:
        touched, tasks = self._cycle.touched, self._cycle.state.tasks
        if cleared.seen == len(touched):
            return
        if cleared.seen < 0:
            nodes, rows = np.arange(len(cleared.devices)), np.flatnonzero(chosen)
        else:
            nodes = np.array(sorted(set(touched[cleared.seen :])), np.int64)
            changed = np.zeros(len(cleared.devices), np.bool_)
            changed[nodes] = True
            rows = np.flatnonzero(chosen & changed[tasks.node])
        room = self._cycle.room.cleared(tasks, rows, nodes)
        cleared.devices[nodes], cleared.host[:, nodes] = room
        cleared.seen = len(touched)
