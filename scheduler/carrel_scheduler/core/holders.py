"""Who holds what is short: the facts that a reason names, largest first, at most five."""

from collections.abc import Iterable

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.reasons import Holder
from carrel_scheduler.core.workloads import Record

MOST = 5


def holders_of(cycle: Cycle, resource: int, nodes: frozenset[str] | None) -> tuple[Holder, ...]:
    """Those who hold the resource on these nodes (``None``: on all), and those who start now."""
    names = cycle.state.nodes.names
    tasks = cycle.state.tasks
    found = []
    for record in cycle.state.holding_records():
        count = len(record.rows)
        if nodes is not None:
            count = sum(names[tasks.node[row]] in nodes for row in record.rows.values())
        found.append(_holder(cycle, record, count * _of_one_task(record, resource)))
    return _largest(found)


def project_holders(cycle: Cycle, slot: int, resource: int) -> tuple[Holder, ...]:
    """Those of one project who hold the resource."""
    return _of_project(cycle, slot, resource, only_fixed=False)


def fixed_holders(cycle: Cycle, slot: int, resource: int) -> tuple[Holder, ...]:
    """The non-preemptible work of one project that holds the resource."""
    return _of_project(cycle, slot, resource, only_fixed=True)


def giving_way(cycle: Cycle, claimer: Record, resource: int) -> tuple[Holder, ...]:
    """Those whose room, being released, is held for a workload."""
    victims = cycle.victims.get(claimer.spec.uid)
    if victims is None:
        victims = tuple(_releasing_on(cycle, claimer))
    foreign = claimer.project
    return _largest(
        _holder(
            cycle,
            victim,
            _of_one_task(victim, resource) * len(victim.rows),
            borrowed=victim.project != foreign
            and (victim.spec.uid in cycle.evicted or cycle.state.is_borrowed(victim.spec.uid)),
        )
        for victim in victims
    )


def _releasing_on(cycle: Cycle, claimer: Record) -> Iterable[Record]:
    """The workloads being stopped on the places held for ``claimer``."""
    tasks = cycle.state.tasks
    places = {place.node: set(place.devices) for place in cycle.promises[claimer.spec.uid]}
    for place in cycle.promises[claimer.spec.uid]:
        places[place.node] |= set(place.devices)
    for record in cycle.state.holding_records():
        for row in record.rows.values():
            here = places.get(int(tasks.node[row]))
            if here is None or not tasks.stopping[row]:
                continue
            if not here or not here.isdisjoint(tasks.footprint(row).devices):
                yield record
                break


def _of_project(cycle: Cycle, slot: int, resource: int, *, only_fixed: bool) -> tuple[Holder, ...]:
    return _largest(
        _holder(cycle, record, _of_one_task(record, resource) * len(record.rows))
        for record in cycle.state.holding_records()
        if record.project == slot and not (only_fixed and record.spec.preemptible)
    )


def _holder(cycle: Cycle, record: Record, amount: int, *, borrowed: bool | None = None) -> Holder:
    spec = record.spec
    if borrowed is None:
        borrowed = cycle.state.is_borrowed(spec.uid)
    return Holder(spec.project, spec.uid, spec.name, spec.user, amount, borrowed, record.started)


def _of_one_task(record: Record, resource: int) -> int:
    return record.spec.request.as_tuple()[resource]


def _largest(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    holding = [holder for holder in holders if holder.amount > 0]
    return tuple(sorted(holding, key=lambda h: (-h.amount, not h.borrowed, h.since, h.uid))[:MOST])
