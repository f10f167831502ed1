"""Search for victims of a request: bounds first, then the cheapest set that can be found.

From cheap to dear: proofs of "no" (B0, B1); victims in their order, where no unit costs more than
another; the cheapest places; where budgets bind, the cheapest legal ones (``repair``); every
combination, where there are few units. What was chosen is checked against the exact rules, and
units that the request does not need are pruned.

The exact search for small questions and the pruning evict and keep units one at a time, with a
running count of what fits (``VictimSet``). The exact search decides one unit after another, the
dearest first: kept, if the request still fits with all undecided ones gone, then evicted, if its
queue allows it. A branch ends when what is evicted costs more than the best answer. Among equally
cheap answers the one wins whose units come first in the order of victims, compared from the latest
unit on.
"""

from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.preemption.search.budgets import RunningLosses
from carrel_scheduler.core.preemption.search.in_order import first_in_order
from carrel_scheduler.core.preemption.search.model import (
    Answer,
    Cleared,
    FreeDevices,
    GangRequest,
    Impossible,
    Layout,
    SearchLimitReached,
    cells,
    fitting,
    fitting_one,
)
from carrel_scheduler.core.preemption.search.places import Places, cheapest, places_of
from carrel_scheduler.core.preemption.search.repair import cheapest_legal, with_shared_units

FEW = 20
"""The number of units up to which every combination is looked at."""
STEPS = 2000
"""The most steps of the exact search: the same question has the same answer."""


def search(request: GangRequest, layout: Layout) -> Answer:
    """Choose the candidates whose eviction frees capacity for a request, at the least cost."""
    eligible, free = layout.free.eligible, layout.free
    fits = fitting(request, layout.devices, layout.host) * eligible
    if int(np.minimum(fits, request.tasks).sum()) < request.tasks:
        return Impossible("nodes")
    if layout.refuses(request, fits):
        return Impossible("budgets")
    layout.weigh()
    base = fitting(request, free.devices, free.host) * eligible
    return _ArraySearch(request, layout, fits, base).run()


@dataclass(slots=True)
class _ArraySearch:
    """``fits`` and ``base`` (N,): tasks that fit if all units go, and if none goes."""

    request: GangRequest
    layout: Layout
    fits: Counts
    base: Counts

    @property
    def cost(self) -> Counts:
        """(U,) work lost by evicting each unit."""
        return self.layout.candidates.cost

    def run(self) -> Answer:
        """The cheapest set found, a proof that there is none, or that none was found."""
        layout, cost = self.layout, self.cost[self.layout.budgets.live]
        if not len(cost) or int(cost.min()) == int(cost.max()):
            units = first_in_order(self.request, layout)
            units = None if units is None else self._pruned(units)
            if units is not None:
                return self._cleared(units)
        need = self.request.tasks - int(np.minimum(self.base, self.request.tasks).sum())
        if need <= 0:
            return self._cleared(np.zeros(0, np.int64))
        items = places_of(self.request, layout, self.fits, self.base)
        chosen = self._choose(items, need)
        few = len(items.unit) <= 8 * FEW and len(self._candidates()) <= FEW
        if few:
            units = None if chosen is None else self._pruned(items.units(chosen))
            return self._exact(units)
        if chosen is None:
            return SearchLimitReached()
        if items.forced and len(chosen) == need:
            return self._on(items, chosen)
        units = self._pruned(items.units(chosen))
        return SearchLimitReached() if units is None else self._cleared(units)

    def _choose(self, items: Places, need: int) -> Counts | None:
        layout, budgets = self.layout, self.layout.budgets
        if not layout.candidates.alone and bool((np.bincount(items.unit) > 1).any()):
            chosen = with_shared_units(items, need, self.cost)
        else:
            chosen = cheapest(items.cost, items, need)
        if chosen is None or not budgets.caps.binds.any() or budgets.legal(items.units(chosen)):
            return chosen
        return cheapest_legal(items, need, budgets, layout.candidates.order)

    def _pruned(self, units: Counts) -> Counts | None:
        return pruned(self.request, self.layout, units, self.base)

    def _candidates(self) -> Counts:
        """Units on nodes where evictions help."""
        layout = self.layout
        rows = layout.rows[(self.fits > self.base).take(layout.candidates.node.take(layout.rows))]
        flags = np.zeros(len(self.cost), np.bool_)
        flags[layout.candidates.unit.take(rows)] = True
        return np.flatnonzero(flags)

    def _exact(self, known: Counts | None) -> Answer:
        units = self._candidates().tolist()
        trial = VictimSet(self.request, self.layout, self.base, self.fits > 0)
        cost = {unit: int(self.cost[unit]) for unit in units}
        order = {unit: int(self.layout.candidates.order[unit]) for unit in units}
        exact = ExactSearch(trial, RunningLosses(self.layout.budgets), cost, order, STEPS)
        found = exact.best(None if known is None else known.tolist())
        if found.units is not None:
            return self._cleared(np.array(found.units, np.int64))
        return Impossible("search") if found.complete else SearchLimitReached()

    def _on(self, items: Places, chosen: Counts) -> Cleared:
        """The result where every item is a place that needs all its units."""
        units = items.units(chosen)
        free = np.flatnonzero(self.base)
        nodes = np.concatenate((items.node.take(chosen), np.repeat(free, self.base.take(free))))
        return Cleared(units, nodes, int(self.cost.take(units).sum()))

    def _cleared(self, units: Counts) -> Cleared:
        """Put the tasks on nodes that were cleared for them, then on others, by rank."""
        layout = self.layout
        gone = np.zeros(len(self.cost), np.bool_)
        gone[units] = True
        fits = fitting(self.request, *layout.free_without(layout.rows_of(gone)))
        fits *= layout.free.eligible
        order = np.lexsort((layout.free.rank, -(fits > self.base).astype(np.int8), fits == 0))
        counts = np.minimum(fits.take(order), self.request.tasks)
        nodes = np.repeat(order, counts)[: self.request.tasks]
        return Cleared(units, nodes, int(self.cost.take(units).sum()))


Task = tuple[int, tuple[int, ...], int, int, int]
"""Node, devices, share on each, millicores, MiB."""


class VictimSet:
    """A set of evicted units to which units are added and removed.

    Args:
        request: what is wanted.
        layout: the candidates.
        base: (N,) tasks that fit with nobody gone.
        usable: (N,) flags of the nodes that count.
    """

    def __init__(self, request: GangRequest, layout: Layout, base: Counts, usable: Bools) -> None:
        self.request, self.layout, self.base, self.usable = request, layout, base, usable
        self.total = int(base.sum())
        self.fits: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self._tasks: dict[int, list[Task]] = {}
        self._rows: Counts | None = None
        self._start: Counts | None = None

    @property
    def enough(self) -> bool:
        """Whether the whole request fits."""
        return self.total >= self.request.tasks

    def evict(self, unit: int) -> None:
        """Evict a unit: what it holds becomes free."""
        self._move(unit, 1)

    def keep(self, unit: int) -> None:
        """Undo the eviction of a unit."""
        self._move(unit, -1)

    def _move(self, unit: int, sign: int) -> None:
        tasks = self._tasks.get(unit)
        if tasks is None:
            tasks = self._tasks[unit] = self._look_up(unit)
        width = len(self.layout.devices)
        for node, devices, share, cpu, memory in tasks:
            free = self._free[node]
            for device in devices:
                free[device] += sign * share
            free[width] += sign * cpu
            free[width + 1] += sign * memory
            fits = fitting_one(self.request, free[:width], free[width], free[width + 1])
            self.total += fits - self.fits[node]
            self.fits[node] = fits

    def _look_up(self, unit: int) -> list[Task]:
        candidates, free = self.layout.candidates, self.layout.free
        tasks: list[Task] = []
        for row in self._rows_of(unit):
            node, mask = int(candidates.node[row]), int(candidates.mask[row])
            if not self.usable[node]:
                continue
            held = tuple(d for d in range(mask.bit_length()) if mask >> d & 1)
            cpu, memory = int(candidates.cpu_milli[row]), int(candidates.memory_mib[row])
            tasks.append((node, held, int(candidates.share[row]), cpu, memory))
            if node not in self._free:
                self._free[node] = free.devices[:, node].tolist() + free.host[:, node].tolist()
                self.fits[node] = int(self.base[node])
        return tasks

    def _rows_of(self, unit: int) -> list[int]:
        if self.layout.candidates.alone:
            return [unit]
        if self._rows is None or self._start is None:
            unit_of = self.layout.candidates.unit
            self._rows = np.argsort(unit_of, kind="stable")
            count = np.bincount(unit_of, minlength=len(self.layout.candidates.cost))
            self._start = np.append(0, np.cumsum(count))
        rows: list[int] = self._rows[self._start[unit] : self._start[unit + 1]].tolist()
        return rows


@dataclass(slots=True)
class Found:
    """The cheapest set so far, its latest places first, and whether the search was complete."""

    units: list[int] | None
    cost: int
    places: list[int]
    complete: bool


class ExactSearch:
    """A search over ``units``; in ``trial`` nothing is evicted at the start."""

    def __init__(
        self,
        trial: VictimSet,
        losses: RunningLosses,
        cost: dict[int, int],
        order: dict[int, int],
        steps: int,
    ) -> None:
        self._trial, self._losses = trial, losses
        self._cost, self._order, self._steps = cost, order, steps
        self._units = sorted(cost, key=lambda unit: (-cost[unit], -order[unit]))
        self._gone: list[int] = []
        self._best = Found(None, -1, [], complete=True)

    def best(self, known: list[int] | None = None) -> Found:
        """The cheapest legal set that suffices.

        Args:
            known: a legal set that suffices, to start from.
        """
        if known is not None:
            self._offer(known)
        for unit in self._units:
            self._trial.evict(unit)
        if self._trial.enough:
            self._decide(0, 0)
        return self._best

    def _decide(self, index: int, cost: int) -> None:
        """Branch on a unit; in the trial, units without a decision count as evicted."""
        if self._steps <= 0:
            self._best.complete = False
            return
        self._steps -= 1
        if index == len(self._units):
            self._offer(self._gone)
            return
        unit = self._units[index]
        self._trial.keep(unit)
        if self._trial.enough:
            self._decide(index + 1, cost)
        self._trial.evict(unit)
        more = cost + self._cost[unit]
        if (self._best.cost < 0 or more <= self._best.cost) and self._losses.allows(unit):
            self._losses.take(unit)
            self._gone.append(unit)
            self._decide(index + 1, more)
            self._gone.pop()
            self._losses.give_back(unit)

    def _offer(self, units: list[int]) -> None:
        cost = sum(self._cost[unit] for unit in units)
        places = sorted((self._order[unit] for unit in units), reverse=True)
        if self._best.cost < 0 or (cost, places) < (self._best.cost, self._best.places):
            self._best.units, self._best.cost, self._best.places = list(units), cost, places


MOST_TRIED = 1 << 14
"""The most units that are tried when a set is pruned."""


def pruned(request: GangRequest, layout: Layout, units: Counts, base: Counts) -> Counts | None:
    """``units`` without those that the request can do without; ``None`` if they do not suffice.

    The dearest are tried first, among equals the latest in the order of victims.

    Args:
        request: what is wanted.
        layout: the candidates.
        units: that may go together.
        base: (N,) tasks that fit with nobody gone.
    """
    candidates = layout.candidates
    gone = np.zeros(len(candidates.cost), np.bool_)
    gone[units] = True
    rows = layout.rows_of(gone)
    devices, host = layout.free_without(rows)
    fits = np.where(layout.free.eligible, fitting(request, devices, host), 0)
    slack = int(fits.sum()) - request.tasks
    if slack < 0:
        return None
    helps = rows[(fits > base).take(candidates.node.take(rows))]
    useful = np.zeros(len(gone), np.bool_)
    useful[layout.units_of(helps)] = True
    units = np.flatnonzero(useful)
    critical = np.zeros(len(gone), np.bool_)
    if layout.candidates.alone:
        critical[units] = _critical(request, layout, units, fits, (devices, host))
    order = np.lexsort((candidates.order.take(units), candidates.cost.take(units)))[::-1]
    trial = VictimSet(request, layout, base, fits > base)
    kept, primed, tries = np.zeros(len(gone), np.bool_), False, 0
    for unit in units.take(order).tolist():
        if critical[unit] and slack <= 0:
            continue
        tries += 1
        if tries > MOST_TRIED:
            break
        if not primed:
            for each in units.tolist():
                trial.evict(each)
            primed = True
        trial.keep(unit)
        if trial.enough:
            kept[unit], slack = True, trial.total - request.tasks
        else:
            trial.evict(unit)
    return units[~kept.take(units)]


def _critical(
    request: GangRequest,
    layout: Layout,
    units: Counts,
    fits: Counts,
    free: tuple[FreeDevices, Counts],
) -> Bools:
    """(len(units),) units of one task each of which keeping alone would cost a place."""
    candidates = layout.candidates
    node = candidates.node.take(units)
    devices, host = free[0].take(node, axis=1), free[1].take(node, axis=1)
    row, device = cells(candidates, units)
    devices[device, row] -= candidates.share.take(units).take(row).astype(devices.dtype)
    host -= np.stack([candidates.cpu_milli.take(units), candidates.memory_mib.take(units)])
    return fitting(request, devices, host) < fits.take(node)
