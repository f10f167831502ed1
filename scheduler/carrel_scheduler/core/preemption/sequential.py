"""The sequential search: victims for one step of a job, unit by unit.

Units are taken in the order of victims until the step finds its places. Then, from the last taken
on, whoever is not needed is spared (if that is everybody, the capacity is there without evictions,
and allocating it is not this search's task). Then victims that fit elsewhere get places reserved
there and are moved rather than stopped. Nothing has changed when there is no answer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.preemption.group_quotas import staying
from carrel_scheduler.core.preemption.mig_instances import in_the_way
from carrel_scheduler.core.preemption.victim_order import EvictionUnit, OrderedVictims
from carrel_scheduler.core.resources import Triple
from carrel_scheduler.core.work.jobs import JobInfo

MANY = 8
"""The number of victims from which it is asked first whether all of them would do."""


def nobody(_unit: EvictionUnit) -> bool:
    """Never relocate a unit: all victims may be evicted without a new place."""
    return False


def everybody(_unit: EvictionUnit) -> bool:
    """Always: all victims need a new place."""
    return True


@dataclass(frozen=True, slots=True)
class Search:
    """A search for one preemptor.

    Attributes:
        preemptor, step: whose tasks need places.
        cause: what victims are told.
        must_move: those who may only be stopped if they have a place elsewhere.
        own: what victims of the preemptor's own queue are told, where it is something else; they
            leave so that the request stands, so they are not moved either.
    """

    cycle: Cycle
    preemptor: JobInfo
    step: tuple[int, ...]
    cause: Cause
    must_move: Callable[[EvictionUnit], bool] = nobody
    own: Cause | None = None

    def run(self, units: Iterator[EvictionUnit]) -> bool:
        """Whether capacity was freed: victims are stopped and the step's places are reserved."""
        moves = self.cycle.moves
        begin = moves.mark()
        taken: list[EvictionUnit] = []
        tries = 0
        for unit in units:
            self._stop(unit)
            taken.append(unit)
            if not self._may_fit():
                continue
            tries += 1
            if tries > self.cycle.settings.search_steps:
                break
            moves.rollback(begin)
            chosen = self._choose(taken)
            if chosen is not None:
                needed = self._prune(chosen)
                if not needed:
                    return False
                self._settle(needed)
                return True
            for other in taken:
                self._stop(other)
        moves.rollback(begin)
        return False

    def is_hopeless(self, victims: Sequence[JobInfo]) -> bool:
        """Whether the step finds no places even with all of these gone, as far as counting tells.

        ``victims``: all of whom anything may be taken. Few are not counted: to go through them in
        order takes no longer.
        """
        if len(victims) < MANY:
            return not victims
        moves = self.cycle.moves
        mark, rows = moves.mark(), list[int]()
        for job in victims:
            uid = job.spec.uid
            for index in (*moves.started.get(uid, ()), *moves.reserved.get(uid, ())):
                moves.take_back(job, index, self.cause)
            rows += [row for index, row in job.rows.items() if index not in job.halted]
        at = np.array(rows, np.int64)
        moves.evict_many(at.compress(~moves.evicted.take(at)), self.cause)
        fits = self._may_fit()
        moves.rollback(mark)
        return not fits

    def _choose(self, taken: list[EvictionUnit]) -> list[EvictionUnit] | None:
        """The units taken so far on a node of the last one, or all, if they suffice."""
        last = taken[-1]
        if len(self.step) == 1:
            for node in last.nodes:
                here = _with_those_before(taken, [one for one in taken if node in one.nodes])
                if len(here) < len(taken) and self._try(here):
                    return here
        return list(taken) if self._try(taken) else None

    def _prune(self, taken: list[EvictionUnit]) -> list[EvictionUnit]:
        """The units that are needed; the last chosen ones are spared first."""
        kept = list(taken)
        for unit in reversed(taken):
            if self._still_first(unit, kept):
                fewer = [other for other in kept if other is not unit]
                if self._try(fewer):
                    kept = fewer
        return kept

    def _still_first(self, unit: EvictionUnit, kept: Sequence[EvictionUnit]) -> bool:
        """Whether it is the last unit kept of its job: what runs on must be whole."""
        mine = [other for other in kept if other.job is unit.job]
        return mine[-1] is unit

    def _try(self, units: list[EvictionUnit]) -> bool:
        moves = self.cycle.moves
        mark = moves.mark()
        for unit in units:
            self._stop(unit)
        fits = self._may_fit() and self._fits(units)
        moves.rollback(mark)
        return fits

    def _fits(self, units: Sequence[EvictionUnit]) -> bool:
        """Whether the step finds places, and so do the victims that need new ones."""
        moves = self.cycle.moves
        mark = moves.mark()
        found = self._place() and self._move_all(self._bound_to_move(units))
        moves.rollback(mark)
        return found

    def _settle(self, units: list[EvictionUnit]) -> None:
        for unit in units:
            self._stop(unit)
        if not self._place():
            raise AssertionError(f"capacity freed for {self.preemptor.uid} does not hold it")
        bound = self._bound_to_move(units)
        if not self._move_all(bound):
            raise AssertionError(f"tasks that move for {self.preemptor.uid} have no place")
        ended: set[str] = set()
        for unit in self._in_order_of_service(units):
            if unit in bound or unit.job.uid in ended or self._is_own(unit):
                continue
            if not self._move(unit) and unit.carries:
                ended.add(unit.job.uid)  # what it could run beside it is of no use

    def _bound_to_move(self, units: Sequence[EvictionUnit]) -> list[EvictionUnit]:
        """The units that must have a new place, unless their job may be stopped for good."""
        bound: list[EvictionUnit] = []
        ends: set[int] = set()
        for unit in self._in_order_of_service(units):
            if not self.must_move(unit):
                ends |= {unit.job.slot} if unit.carries else set()
            elif unit.job.slot not in ends:
                bound.insert(0, unit)
        return bound

    def _place(self) -> bool:
        cycle = self.cycle
        if cycle.over_limit(self.preemptor, self.step) is not None:
            return False
        return place(cycle, self.preemptor, self.step, soon=True)

    def _may_fit(self) -> bool:
        """A quick look before places are sought: whether the first class fits often enough."""
        shape = self.preemptor.shape
        cls = shape.classes[self.step[0]]
        need = sum(shape.classes[index] == cls for index in self.step)
        return int(self.cycle.counts_kept(cls, soon=True).sum()) >= need

    def _is_own(self, unit: EvictionUnit) -> bool:
        return self.own is not None and unit.job.queue == self.preemptor.queue

    def _stop(self, unit: EvictionUnit) -> None:
        cause = self.own if self.own is not None and self._is_own(unit) else self.cause
        for index in unit.indices:
            self.cycle.moves.take_back(unit.job, index, cause)

    def _move_all(self, units: Sequence[EvictionUnit]) -> bool:
        """Places for all; the largest first, since the small find one anywhere."""
        by_size = sorted(units, key=lambda unit: unit.amounts, reverse=True)
        return all(self._move(unit) for unit in by_size)

    def _move(self, unit: EvictionUnit) -> bool:
        """Reserve a place for a victim: its own if it is still free, else another."""
        cycle, job = self.cycle, unit.job
        mark = cycle.moves.mark()
        if cycle.over_limit(job, unit.indices) is not None:
            return False
        unplaced = [i for i in unit.indices if job.shape.bound or not self._returns(job, i)]
        with staying(cycle, job, unplaced) if cycle.group_quotas else nullcontext():
            if not unplaced or place(cycle, job, unplaced, soon=True):
                return True
        cycle.moves.rollback(mark)
        return False

    def _returns(self, job: JobInfo, index: int) -> bool:
        if index not in job.rows:
            return False
        own = self.cycle.state.tasks.footprint(job.rows[index])
        held = self.cycle.free_capacity.has([own], soon=True)
        if not (held and self.cycle.within_group_limits(job, own)):
            return False
        self.cycle.moves.reserve(job, index, own, fixed=False)
        return True

    def _in_order_of_service(self, units: Sequence[EvictionUnit]) -> list[EvictionUnit]:
        return list(reversed(units))


def evict_in_order(
    search: Search,
    victims: Sequence[JobInfo],
    protected: Callable[[JobInfo], bool],
    legal: Callable[[EvictionUnit], bool] = everybody,
    covers: Callable[[EvictionUnit], bool] | None = None,
    instance_legal: Callable[[JobInfo, Triple], bool] = lambda *_: True,
) -> bool:
    """Whether capacity was freed by these victims; first those whose MIG instances are in the way.

    Args:
        search: who asks for what.
        victims: who may be evicted.
        protected: they keep what they cannot run without.
        legal: whether a unit may be evicted now.
        covers: whether all of it lies beyond what its queue keeps, see ``OrderedVictims``.
        instance_legal: whether a job with one MIG instance may be evicted by itself.
    """
    cycle, instances = search.cycle, list[JobInfo]()
    if cycle.state.nodes.mig.any():
        instances = in_the_way(cycle, search.preemptor, search.step, victims, instance_legal)
    for some in (instances, victims):
        ordered = OrderedVictims(cycle, some, protected)
        if some and search.run(ordered.units(legal, covers)):
            return True
    return False


def _with_those_before(
    taken: Sequence[EvictionUnit], chosen: Sequence[EvictionUnit]
) -> list[EvictionUnit]:
    """The chosen, and what their jobs gave before them: what runs on must be whole."""
    last = {unit.job.spec.uid: number for number, unit in enumerate(taken) if unit in chosen}
    return [unit for number, unit in enumerate(taken) if number <= last.get(unit.job.spec.uid, -1)]
