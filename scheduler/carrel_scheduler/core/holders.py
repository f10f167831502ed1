"""Who holds what is short: the facts that a reason names, largest first, at most five."""

from collections.abc import Iterable

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.reasons import Holder
from carrel_scheduler.core.workloads import Record

MOST = 5


class Holders:
    """Those who hold a resource on some nodes; looked up once per cycle, resource and nodes."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._known: dict[tuple[int, frozenset[str] | None], tuple[Holder, ...]] = {}
        self._stopping: dict[int, list[tuple[Record, Footprint]]] | None = None

    def of(self, resource: int, nodes: frozenset[str] | None) -> tuple[Holder, ...]:
        """The largest holders on these nodes; ``None`` means on all."""
        key = (resource, nodes)
        if key not in self._known:
            self._known[key] = self._look(resource, nodes)
        return self._known[key]

    def giving_way(self, claimer: Record, resource: int) -> tuple[Holder, ...]:
        """Those whose room, being released, is held for a workload."""
        cycle = self._cycle
        victims = cycle.victims.get(claimer.spec.uid)
        if victims is None:
            victims = self._stopping_on(cycle.promises[claimer.spec.uid])
        return _largest(
            _holder(
                cycle,
                victim,
                _of_one_task(victim, resource) * len(victim.rows),
                borrowed=victim.project != claimer.project
                and (victim.spec.uid in cycle.evicted or cycle.state.is_borrowed(victim.spec.uid)),
            )
            for victim in victims
        )

    def _stopping_on(self, places: tuple[Footprint, ...]) -> tuple[Record, ...]:
        """The workloads being stopped whose room overlaps these places."""
        if self._stopping is None:
            self._stopping = self._all_stopping()
        found: dict[str, Record] = {}
        for place in places:
            for record, held in self._stopping.get(place.node, ()):
                if not place.devices or not set(place.devices).isdisjoint(held.devices):
                    found[record.spec.uid] = record
        return tuple(found.values())

    def _all_stopping(self) -> dict[int, list[tuple[Record, Footprint]]]:
        tasks = self._cycle.state.tasks
        found: dict[int, list[tuple[Record, Footprint]]] = {}
        for record in self._cycle.state.holding_records():
            for row in record.rows.values() if record.stopping else ():
                if tasks.stopping[row]:
                    place = tasks.footprint(row)
                    found.setdefault(place.node, []).append((record, place))
        return found

    def _look(self, resource: int, nodes: frozenset[str] | None) -> tuple[Holder, ...]:
        names, tasks = self._cycle.state.nodes.names, self._cycle.state.tasks
        found = []
        for record in self._cycle.state.holding_records():
            count = len(record.rows)
            if nodes is not None:
                count = sum(names[tasks.node[row]] in nodes for row in record.rows.values())
            found.append(_holder(self._cycle, record, count * _of_one_task(record, resource)))
        return _largest(found)


def project_holders(cycle: Cycle, slot: int, resource: int) -> tuple[Holder, ...]:
    """Those of one project who hold the resource."""
    return _of_project(cycle, slot, resource, only_fixed=False)


def fixed_holders(cycle: Cycle, slot: int, resource: int) -> tuple[Holder, ...]:
    """The non-preemptible work of one project that holds the resource."""
    return _of_project(cycle, slot, resource, only_fixed=True)


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
