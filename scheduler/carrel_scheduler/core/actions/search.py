"""Clearing room: evict one victim after another until the claimer fits, then spare who can stay.

Victims come in their order, so the first set that suffices is fair; it is not yet the smallest.
Going back from the most deserving victim, each is spared when the claimer still fits without its
eviction. Everything is tried on the cycle's overlays and undone when it leads nowhere.
"""

from collections.abc import Iterator

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.workloads import Record


class Fit:
    """Keeps count of how many of a claimer's tasks fit, node by node, while victims go."""

    def __init__(self, cycle: Cycle, claimer: Record) -> None:
        self._cycle, self._claimer = cycle, claimer
        self._eligible = cycle.eligible(claimer.spec.nodes)
        self._counts = cycle.room.counts(claimer.shape, self._eligible, soon=True)
        self._total = int(self._counts.sum())

    def enough(self) -> bool:
        """Whether all its tasks fit and no limit is in the way."""
        return self._total >= self._claimer.shape[3] and not self._cycle.barred(self._claimer)

    def evict(self, victim: Record) -> None:
        """Count a victim as gone."""
        self._cycle.evict(victim)
        self._recount(victim)

    def keep(self, victim: Record) -> None:
        """Count a victim as staying after all."""
        self._cycle.keep(victim)
        self._recount(victim)

    def _recount(self, victim: Record) -> None:
        tasks = self._cycle.state.tasks
        for node in sorted({int(tasks.node[row]) for row in victim.rows.values()}):
            if self._eligible[node]:
                fits = self._cycle.room.count_on(self._claimer.shape, node)
                self._total += fits - int(self._counts[node])
                self._counts[node] = fits


def clear_room(
    cycle: Cycle, claimer: Record, victims: Iterator[Record]
) -> tuple[Record, ...] | None:
    """Evict until the claimer fits; returns the victims, or ``None`` with everything undone."""
    fit = Fit(cycle, claimer)
    taken: list[Record] = []
    while not fit.enough():
        victim = next(victims, None)
        if victim is None:
            for spared in reversed(taken):
                cycle.keep(spared)
            return None
        fit.evict(victim)
        taken.append(victim)
    for victim in reversed(taken[:-1]):
        fit.keep(victim)
        if fit.enough():
            taken.remove(victim)
        else:
            fit.evict(victim)
    return tuple(taken)
