"""Victims for one more MIG instance: the cheapest legal place on any node.

Instances never move, so sizes alone do not decide whom to stop: of three instances in a row only
the last may stand in the way. Taken in the order of victims, the others would go too.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from carrel_scheduler.core import mig
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.devices.device_choice import profile_on
from carrel_scheduler.core.preemption.candidates import victims_of
from carrel_scheduler.core.preemption.victim_order import costed
from carrel_scheduler.core.resources import MILLI, Triple
from carrel_scheduler.core.work.jobs import JobInfo
from carrel_scheduler.core.work.tasks import device_mask

Place = tuple[int, int]
"""The cost of stopping a task, and its turn among victims."""


def in_the_way(
    cycle: Cycle,
    job: JobInfo,
    step: Sequence[int],
    victims: Iterable[JobInfo],
    legal: Callable[[JobInfo, Triple], bool],
) -> list[JobInfo]:
    """Choose the jobs to stop for a step of one task, cheapest in sum; empty if none are found.

    Args:
        cycle: the cycle.
        job: who asks.
        step: for which of its tasks.
        victims: jobs that may be evicted; those of several tasks are not looked at.
        legal: whether a job with one task may be taken by itself.
    """
    classes, tasks = cycle.state.classes, cycle.state.tasks
    cls = job.shape.classes[step[0]]
    if len(step) > 1 or not classes.on_nodes(cls):
        return []
    rows = {
        row: other
        for other in victims
        if other.shape.tasks == 1
        for row in other.rows.values()
        if tasks.victim.item(row) >= 0 and legal(other, tasks.footprint(row).amounts)
    }
    places = _places(cycle, rows)
    best: tuple[tuple[int, int, list[int]], list[JobInfo]] | None = None
    eligible = cycle.state.eligible.of(classes.request(cls))
    nodes = {tasks.node.item(row) for row in places}
    for node in sorted(nodes, key=cycle.state.nodes.rank.item):
        if eligible.item(node):
            found = _on(cycle, cls, node, places)
            if found is not None and (best is None or found.rank < best[0]):
                by_turn = {places[row][1]: rows[row] for row in places}
                best = found.rank, [by_turn[one.order] for one in found.victims]
    return [] if best is None else best[1]


def _places(cycle: Cycle, rows: dict[int, JobInfo]) -> dict[int, Place]:
    """Cost and order of those of these rows that may be evicted."""
    giving = np.zeros(len(cycle.queue_usage.used), np.bool_)
    giving[[other.queue for other in rows.values()]] = True
    table = victims_of(cycle, giving)
    weighed = costed(table, table.plain())
    return {
        row: (int(weighed.cost[unit]), int(weighed.order[unit]))
        for row, unit in zip(table.rows.tolist(), table.unit.tolist(), strict=True)
        if row in rows
    }


def _on(cycle: Cycle, cls: int, node: int, places: dict[int, Place]) -> mig.Clearing | None:
    """The cheapest place on a node; ``None`` without one, and where nothing has to go."""
    state, soon = cycle.state, cycle.free_capacity.soon
    fact = state.nodes.fact(node)
    model = mig.model_of(fact.mig_model) if fact.mig_model else None
    profile = profile_on(state.classes.kinds[cls], model) if model else None
    if profile is None or model is None:
        return None
    here = [row for row in state.tasks.rows_on(node) if not cycle.moves.evicted.item(row)]
    devices = []
    for device in range(fact.devices):
        on = [row for row in here if state.tasks.mask.item(row) & device_mask((device,))]
        if device in fact.undivided:
            continue
        free = soon.slots.item(device, node) if cycle.free_capacity.open.item(device, node) else 0
        devices.append((free, [_occupant(cycle, row, places, model) for row in on]))
    found = mig.cheapest_clearing(profile, devices)
    return found if found is not None and found.victims else None


def _occupant(
    cycle: Cycle, row: int, places: dict[int, Place], model: mig.Model
) -> mig.InstanceUser:
    tasks, jobs = cycle.state.tasks, cycle.state.jobs
    shape = jobs.at(tasks.job.item(row)).shape
    name = shape.requests[tasks.index.item(row)].mig_profile
    whole = tasks.share.item(row) >= MILLI
    cost, turn = places.get(row, (0, -1 - row))
    return mig.InstanceUser(
        bits=model.full if whole else tasks.slots.item(row),
        cost=cost,
        order=turn,
        evictable=row in places,
        media=bool(name) and model.profiles[name].media,
    )
