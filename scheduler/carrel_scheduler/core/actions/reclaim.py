"""Reclaim: work within its project's rights takes back what other projects borrowed.

A workload may claim when its project, with it and everything already promised, stays within its
fair share in every resource. Against a claim within the quota other projects keep their quota;
against one beyond it they keep the larger of quota and fair share, and all when their rank is
higher. A victim is legal while its
project is still beyond that threshold in a resource that the claimer asks for and the victim
holds; the last victim may take the project below it. A project within its fair share is never cut
by a claim beyond a quota, and a claimer never rises above its own fair share, so two projects
cannot take the same room from each other in turns.

The oldest claim of a project within its quota gets its room as soon as any legal set of victims
makes it, and holds it from then on; how long a large gang of equal standing may wait behind small
work of its own project is not bounded yet.
"""

from collections.abc import Iterator

import numpy as np

from carrel_scheduler.core.actions.bounds import Bounds
from carrel_scheduler.core.actions.pool import Pool
from carrel_scheduler.core.actions.search import clear_room
from carrel_scheduler.core.actions.victims import (
    beyond,
    reclaimable,
)
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.order import Service
from carrel_scheduler.core.placement import place
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.workloads import Record

MOST_NODE_SETS = 64
"""How many sets of nodes are searched one by one when victims from everywhere lead nowhere."""


def run(cycle: Cycle) -> None:
    """Evict for those who may claim, in the order of service."""
    pool, bounds = Pool(cycle), Bounds(cycle)
    if pool.slots:
        service = Service(cycle.standings, cycle.pending(), cycle.changed)
        service.run(lambda record: _attempt(cycle, record, pool, bounds))


def find(cycle: Cycle, claimer: Record, pool: Pool, bounds: Bounds) -> tuple[Record, ...] | None:
    """Legal victims that make room for a claim, counted as evicted, or ``None``."""
    standing = cycle.standing(claimer)
    if cycle.barred(claimer) or not standing.within(standing.fair, claimer.demand):
        return None
    most = bounds.counts(claimer, *_legal(cycle, claimer))
    if int(most.sum()) < claimer.shape[3]:
        return None
    return _search(cycle, claimer, pool, most)


def _attempt(cycle: Cycle, claimer: Record, pool: Pool, bounds: Bounds) -> bool:
    victims = find(cycle, claimer, pool, bounds)
    if victims is None:
        return False
    cycle.give_way(victims, claimer, Token.RECLAIMED)
    places = place(cycle.room, claimer.shape, cycle.eligible(claimer.spec.nodes), soon=True)
    if places is None:
        raise AssertionError(f"room cleared for {claimer.spec.uid} does not hold it")
    cycle.hold(claimer, places)
    return True


def _legal(cycle: Cycle, claimer: Record) -> tuple[object, Bools]:
    """The tasks of every project beyond what it keeps, and a name for this set."""
    own, asked = cycle.standing(claimer), claimer.demand
    over = [
        standing is not None and bool(beyond(standing, own, asked)) for standing in cycle.standings
    ]
    return tuple(over), np.array([*over, False], np.bool_)[cycle.evictable]


def _search(
    cycle: Cycle,
    claimer: Record,
    pool: Pool,
    most: Counts,
) -> tuple[Record, ...] | None:
    for nodes in _node_sets(claimer, most):
        for only_gpus in (True, False) if claimer.demand[0] else (False,):
            victims = reclaimable(cycle, claimer, pool, nodes=nodes, only_gpus=only_gpus)
            found = clear_room(cycle, claimer, victims)
            if found is not None:
                return found
    return None


def _node_sets(claimer: Record, most: Counts) -> Iterator[Bools]:
    """Where victims are looked for: on all useful nodes, then on ever fewer of them.

    Victims on nodes that do not help use up what may be taken of their project, so a search over
    all nodes can miss what a search over few finds.
    """
    useful = most > 0
    yield useful
    order = np.argsort(-most, kind="stable")[: int(useful.sum())]
    if claimer.shape[3] == 1:
        for node in order[:MOST_NODE_SETS]:
            yield _only(useful, order[order == node])
        return
    size = int(np.searchsorted(np.cumsum(most[order]), claimer.shape[3])) + 1
    while size < len(order):
        yield _only(useful, order[:size])
        size *= 2


def _only(useful: Bools, nodes: Counts) -> Bools:
    mask = np.zeros_like(useful)
    mask[nodes] = True
    return mask
