"""New places for running tasks that have been told to move, held until they have stopped.

Many move at once when a gang needs room, and most are alike: equal ones are spread over the nodes
in one step. Where that finds no place for somebody they are looked at one by one.
"""

from itertools import groupby

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.preemption.relocation import Occupant


def have_places(cycle: Cycle, going: list[Occupant]) -> bool:
    """A quick look: whether each of them, on one node, would fit somewhere else at all."""
    tasks = cycle.state.tasks
    for cls, row in {tasks.cls.item(one.row): one.row for one in going}.items():
        counts = cycle.counts_kept(cls, soon=True)
        if int(counts.sum()) <= counts.item(tasks.node.item(row)):
            return False
    return True


def resettle(cycle: Cycle, going: list[Occupant]) -> bool:
    """Hold a place for each, one after the other, the largest first."""
    return all(_resettle_one(cycle, one) for one in sorted(going, key=_largest_first))


def resettle_together(cycle: Cycle, going: list[Occupant]) -> bool:
    """Hold a place for each, equal ones together; what was held stays where one finds none."""
    ordered = sorted(going, key=_largest_first)
    tasks = cycle.state.tasks
    for cls, group in groupby(ordered, key=lambda one: tasks.cls.item(one.row)):
        alike = list(group)
        many = len(alike) > 1 and all(cycle.state.jobs.at(one.job).shape.plain for one in alike)
        if not (_resettle_alike(cycle, cls, alike) if many else resettle(cycle, alike)):
            return False
    return True


def _largest_first(one: Occupant) -> tuple[int, ...]:
    return (-one.share * len(one.devices), -one.host[0], one.row)


def _resettle_one(cycle: Cycle, one: Occupant) -> bool:
    job = cycle.state.jobs.at(one.job)
    index = cycle.state.tasks.index.item(one.row)
    return cycle.over_limit(job, [index]) is None and place(cycle, job, [index], soon=True)


def _resettle_alike(cycle: Cycle, cls: int, alike: list[Occupant]) -> bool:
    """Tasks of one class that may lie anywhere: on room that is free now, where it suffices."""
    view, chooser = cycle.free_capacity.idle, cycle.state.chooser
    for soon in (False, True):
        spread = chooser.spread(cls, len(alike), cycle.counts_kept(cls, soon=soon), view)
        if spread is not None:
            places = [(node, left) for node, count in spread for left in range(count, 0, -1)]
            pairs = zip(alike, places, strict=True)
            return all(_hold(cycle, cls, one, *place) for one, place in pairs)
    return False


def _hold(cycle: Cycle, cls: int, one: Occupant, node: int, left: int) -> bool:
    """Hold a place on a node for one of the so many that are left to go there."""
    job = cycle.state.jobs.at(one.job)
    index = cycle.state.tasks.index.item(one.row)
    footprint = cycle.footprint(cls, node, soon=True, tasks=left)
    if footprint is None or cycle.over_limit(job, [index]) is not None:
        return False
    cycle.moves.reserve(job, index, footprint, fixed=cycle.is_fixed(job))
    return True
