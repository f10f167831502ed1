"""Victims: who gives way first.

The order is the reverse of service: the project furthest beyond its share first (lower rank and
younger project first), in it the lowest priority first. Among workloads of the same project and
the same priority, those shown as borrowed go before those shown as covered by the guarantee, so
that nobody is surprised; among these, what loses the least work since its last checkpoint goes
first, then the younger submission. A workload that never reported a checkpoint counts from its
start. Lost work is compared nowhere else: not between projects and not between priorities, so a
project that reports checkpoints, or does not, is neither a better nor a worse victim than its
share makes it.

Among equals a workload that lies wholly beyond the project's threshold goes before one that would
take the project below it: a claim of one GPU takes a borrowed GPU, not half of a guaranteed pair.
"""

from collections.abc import Iterator

from carrel_scheduler.core.actions.pool import Pool
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.layers import Bools
from carrel_scheduler.core.order import NOTHING, Key, project_key
from carrel_scheduler.core.projects import Triple
from carrel_scheduler.core.resources import UNLIMITED
from carrel_scheduler.core.standings import RESOURCES, Standing
from carrel_scheduler.core.workloads import Record


def excess(standing: Standing, threshold: Triple, asked: Triple) -> dict[int, int]:
    """By resource that is asked for: how far a project is beyond its threshold."""
    return {
        resource: standing.used[resource] - threshold[resource]
        for resource in RESOURCES
        if asked[resource]
        and threshold[resource] != UNLIMITED
        and standing.used[resource] > threshold[resource]
    }


def beyond(standing: Standing, claimer: Standing, asked: Triple) -> dict[int, int]:
    """By resource that is asked for: how far a project is beyond what it keeps against a claim.

    Against a claim within the claimer's quota it keeps its quota; against one beyond it, the larger
    of quota and fair share, and everything when its rank is higher: what it lost it would win back
    first.
    """
    if claimer.within(claimer.quota, asked):
        return excess(standing, standing.quota, asked)
    if standing.rule.rank > claimer.rule.rank:
        return {}
    return excess(standing, standing.ceiling, asked)


def reclaimable(
    cycle: Cycle,
    claimer: Record,
    pool: Pool,
    *,
    nodes: Bools,
    only_gpus: bool,
) -> Iterator[Record]:
    """Legal victims of a claim, one by one; each must be evicted before the next is asked for.

    Args:
        cycle: the cycle, whose standings follow the evictions.
        claimer: the waiting workload.
        pool: all evictable workloads.
        nodes: victims must hold room on one of these.
        only_gpus: leave out work without GPUs.
    """
    lines = {
        slot: Line(cycle, filter(_has_gpus, victims) if only_gpus else victims)
        for slot, victims in pool.on(nodes).items()
        if slot != claimer.project
    }
    offers: dict[int, tuple[Key, Record]] = {}
    for slot, line in lines.items():
        _offer(cycle, claimer, slot, line, offers)
    while offers:
        _, victim = max(offers.values())
        yield victim
        _offer(cycle, claimer, victim.project, lines[victim.project], offers)


def _has_gpus(victim: Record) -> bool:
    return victim.demand[0] > 0


class Line:
    """The victims of one project that suit a claim, looked through no further than needed."""

    def __init__(self, cycle: Cycle, victims: Iterator[Record]) -> None:
        self._cycle = cycle
        self._unseen = victims
        self._passed: list[Record] = []

    def take(self, over: dict[int, int]) -> Record | None:
        """The next victim of a project that is ``over`` what it keeps, or ``None``.

        From one call to the next ``over`` may only shrink: who holds nothing of it is forgotten.
        """
        first: int | None = None
        place = 0
        while (victim := self._at(place)) is not None:
            if first is not None and victim.spec.priority != self._passed[first].spec.priority:
                break
            held = self._cycle.held_by(victim)
            if not any(held[resource] for resource in over):
                del self._passed[place]
                continue
            if all(held[resource] <= amount for resource, amount in over.items()):
                return self._passed.pop(place)
            first = place if first is None else first
            place += 1
        return None if first is None else self._passed.pop(first)

    def _at(self, place: int) -> Record | None:
        if place == len(self._passed):
            victim = next(self._unseen, None)
            if victim is None:
                return None
            self._passed.append(victim)
        return self._passed[place]


def _offer(
    cycle: Cycle,
    claimer: Record,
    slot: int,
    line: Line,
    offers: dict[int, tuple[Key, Record]],
) -> None:
    """Note a project's next legal victim with the project's place, or that it has none."""
    offers.pop(slot, None)
    standing = cycle.standings[slot]
    if standing is not None:
        over = beyond(standing, cycle.standing(claimer), claimer.demand)
        victim = line.take(over) if over else None
        if victim is not None:
            offers[slot] = (project_key(standing, NOTHING), victim)
