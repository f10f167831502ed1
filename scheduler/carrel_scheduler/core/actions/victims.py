"""Victims: who gives way first.

The order is the reverse of service: the project furthest beyond its share first (lower rank and
younger project first), in it the lowest priority first. Among workloads of the same project and
the same priority, what loses the least work since its last checkpoint goes first, then the younger
submission. A workload that never reported a checkpoint counts from its start. Lost work is
compared nowhere else: not between projects and not between priorities, so a project that reports
checkpoints, or does not, is neither a better nor a worse victim than its share makes it.

Among equals a workload that lies wholly beyond the project's threshold goes before one that would
take the project below it: a claim of one GPU takes a borrowed GPU, not half of a guaranteed pair.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.layers import Bools
from carrel_scheduler.core.order import NOTHING, Key, project_key
from carrel_scheduler.core.projects import Triple
from carrel_scheduler.core.resources import UNLIMITED
from carrel_scheduler.core.standings import RESOURCES, Standing
from carrel_scheduler.core.tasks import NOBODY
from carrel_scheduler.core.workloads import Record

MOST_LISTED = 256


def in_victim_order(records: list[Record], now: float) -> list[Record]:
    """Workloads of one project, the first to give way first."""
    by_uid = sorted(records, key=lambda record: record.spec.uid, reverse=True)
    return sorted(
        by_uid,
        key=lambda r: (r.spec.priority, r.lost_if_stopped(now), -r.spec.created_at),
    )


def running(cycle: Cycle) -> dict[int, list[Record]]:
    """Evictable workloads by project slot, each in the order of victims."""
    by_project: dict[int, list[Record]] = {}
    for record in cycle.state.holding_records():
        if record.evictable and record.spec.uid not in cycle.evicted:
            by_project.setdefault(record.project, []).append(record)
    return {slot: in_victim_order(records, cycle.now) for slot, records in by_project.items()}


def on_nodes(cycle: Cycle, nodes: Bools) -> Callable[[Record], bool]:
    """A test whether an evictable workload holds room on one of these nodes.

    Few tasks are listed beforehand; many are looked at one by one, as only the first victims of a
    project are ever asked about.
    """
    tasks = cycle.state.tasks
    rows = np.flatnonzero((cycle.evictable != NOBODY) & nodes[tasks.node])
    if len(rows) <= MOST_LISTED:
        listed = {tasks.owners[row][0] for row in rows}
        return lambda record: record.spec.uid in listed
    return lambda record: any(nodes[tasks.node[row]] for row in record.rows.values())


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
    pool: dict[int, list[Record]],
    *,
    nodes: Bools,
    only_gpus: bool,
) -> Iterator[Record]:
    """Legal victims of a claim, one by one; each must be evicted before the next is asked for.

    Args:
        cycle: the cycle, whose standings follow the evictions.
        claimer: the waiting workload.
        pool: evictable workloads by project, in the order of victims.
        nodes: victims must hold room on one of these.
        only_gpus: leave out work without GPUs.
    """
    there = on_nodes(cycle, nodes)
    taken: set[str] = set()

    def suits(victim: Record) -> bool:
        if victim.spec.uid in taken or (only_gpus and not victim.demand[0]):
            return False
        return there(victim)

    offers: dict[int, tuple[Key, Record]] = {}
    for slot, victims in pool.items():
        if slot != claimer.project:
            _offer(cycle, claimer, slot, filter(suits, victims), offers)
    while offers:
        slot = max(offers, key=lambda slot: offers[slot][0])
        victim = offers[slot][1]
        taken.add(victim.spec.uid)
        yield victim
        _offer(cycle, claimer, slot, filter(suits, pool[slot]), offers)


def _offer(
    cycle: Cycle,
    claimer: Record,
    slot: int,
    victims: Iterable[Record],
    offers: dict[int, tuple[Key, Record]],
) -> None:
    """Note a project's next legal victim with the project's place, or that it has none."""
    offers.pop(slot, None)
    standing = cycle.standings[slot]
    if standing is not None:
        over = beyond(standing, cycle.standing(claimer), claimer.demand)
        victim = _next_of(cycle, victims, over) if over else None
        if victim is not None:
            offers[slot] = (project_key(standing, NOTHING), victim)


def _next_of(cycle: Cycle, victims: Iterable[Record], over: dict[int, int]) -> Record | None:
    """The next victim of a project that is ``over`` what it keeps, or ``None``."""
    first: Record | None = None
    for victim in victims:
        if first is not None and victim.spec.priority != first.spec.priority:
            break
        held = cycle.held_by(victim)
        if not any(held[resource] for resource in over):
            continue
        if all(held[resource] <= amount for resource, amount in over.items()):
            return victim
        first = first or victim
    return first
