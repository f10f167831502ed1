"""Clearing room: evict one victim after another until the claimer fits, then spare who can stay.

Victims come in their order, so the first set that suffices is fair; it is not yet the smallest.
Going back from the most deserving victim, each is spared when the claimer still fits without its
eviction. What goes and stays is counted per node and project only; the room of the cycle changes
once, when the victims are known.
"""

from collections.abc import Iterable, Iterator

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.room import tasks_in
from carrel_scheduler.core.workloads import Record


class Fit:
    """Keeps count of how many of a claimer's tasks fit, node by node, while victims go."""

    def __init__(self, cycle: Cycle, claimer: Record) -> None:
        self._cycle, self._claimer = cycle, claimer
        self._eligible = cycle.eligible(claimer.spec.nodes).tobytes()
        counts = cycle.room.counts(claimer.shape, cycle.eligible(claimer.spec.nodes), soon=True)
        self._total = int(counts.sum())
        self._barred = cycle.barred(claimer)
        self._fits: dict[int, int] = {}
        self._room: dict[int, list[int]] = {}

    def enough(self) -> bool:
        """Whether all its tasks fit and no limit is in the way."""
        return self._total >= self._claimer.shape[3] and not self._barred

    def evict(self, victim: Record) -> None:
        """Count a victim as gone."""
        self._cycle.count_out(victim)
        self._move(victim, 1)

    def keep(self, victim: Record) -> None:
        """Count a victim as staying after all."""
        self._cycle.count_in(victim)
        self._move(victim, -1)

    def needless(self, victim: Record) -> bool:
        """Whether its eviction helps nowhere: nothing fits on its nodes even so.

        Where nothing fits now nothing will, as from here on victims only come back.
        """
        if victim.project == self._claimer.project:
            return False
        tasks, fits = self._cycle.state.tasks, self._fits
        return not any(fits.get(tasks.footprint(row).node) for row in victim.rows.values())

    def _move(self, victim: Record, sign: int) -> None:
        tasks, room = self._cycle.state.tasks, self._cycle.room
        for row in victim.rows.values():
            place = tasks.footprint(row)
            node = place.node
            if not self._eligible[node]:
                continue
            if node not in self._room:
                self._room[node] = room.coming(node)
                self._fits[node] = tasks_in(self._room[node], self._claimer.shape)
            here = self._room[node]
            here[0] += sign * room.usable(place)
            here[1] += sign * place.cpu
            here[2] += sign * place.memory
            fits = tasks_in(here, self._claimer.shape)
            self._total += fits - self._fits[node]
            self._fits[node] = fits
        if victim.project == self._claimer.project:
            self._barred = self._cycle.barred(self._claimer)


def clear_room(
    cycle: Cycle, claimer: Record, victims: Iterator[Record]
) -> tuple[Record, ...] | None:
    """Evict until the claimer fits; returns the victims, or ``None`` with everything undone."""
    fit = Fit(cycle, claimer)
    taken: list[Record] = []
    while not fit.enough():
        victim = next(victims, None)
        if victim is None:
            for spared in taken:
                cycle.count_in(spared)
            return None
        fit.evict(victim)
        taken.append(victim)
    needed = taken[-1:]
    for victim in reversed(taken[:-1]):
        if fit.needless(victim):
            cycle.count_in(victim)
            continue
        fit.keep(victim)
        if not fit.enough():
            fit.evict(victim)
            needed.append(victim)
    needed.reverse()
    _stop(cycle, needed)
    return tuple(needed)


def _stop(cycle: Cycle, victims: Iterable[Record]) -> None:
    """Their room is coming; their projects have been told already."""
    for victim in victims:
        for row in victim.rows.values():
            cycle.room.evict(cycle.state.tasks.footprint(row))
