"""Holders of a scarce resource: the facts that a reason names, largest first, at most five.

Sums per workload are made once for all holders of a cycle, so that each further question is one
look through a column.
"""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.cycle.moves import ManyEvicted, ManyReserved, Move, MoveKind
from carrel_scheduler.core.layers import Bools, Counts, Footprint
from carrel_scheduler.core.messages.sentences import MOST
from carrel_scheduler.core.reasons import Holder
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.work.tasks import device_mask, devices_of

Floats = npt.NDArray[np.float64]
Amounts = tuple[tuple[int, int], ...]
"""Slots of jobs and what they hold."""

if TYPE_CHECKING:
    from carrel_scheduler.core.cycle.cycle import Cycle
    from carrel_scheduler.core.work.jobs import JobInfo

EXTENDED = 3
"""Resources from here on are extended ones."""

LOOKED_AT = 8
"""The number of largest holders beyond which the older submissions come first."""


class Holders:
    """The workloads that hold allocations, as of one cycle."""

    def __init__(self, cycle: "Cycle") -> None:
        self._cycle = cycle
        self._rows: Counts | None = None
        self._amounts: dict[int, Counts] = {}
        self._known: dict[object, tuple[Holder, ...]] = {}
        self._given: dict[str, dict[int, list[int]]] | None = None

    def of(self, resource: int, mask: Bools, key: Hashable) -> tuple[Holder, ...]:
        """The largest holders on some nodes.

        Args:
            resource: what they hold.
            mask: (N,) the nodes.
            key: equal for equal masks.
        """
        known = ("nodes", resource, key)
        if known not in self._known:
            found = self._largest_kept(resource, mask, key)
            self._known[known] = self._told(found)
        return self._known[known]

    def in_queue(
        self, slot: int, resource: int, *, only_fixed: bool, nodes: Bools | None = None
    ) -> tuple[Holder, ...]:
        """The holders in a queue and the queues below; ``only_fixed``: non-preemptible ones.

        ``nodes`` (N,): those on these nodes; ``None``: on any.
        """
        known = ("queue", resource, slot, only_fixed, None if nodes is None else nodes.tobytes())
        if known not in self._known:
            state, rows = self._cycle.state, self._used()
            below = [slot in state.queues.path(other) for other in range(len(state.queues.rules))]
            queue = state.jobs.queue.take(state.tasks.job.take(rows))
            mine = np.array(below, np.bool_).take(queue) & ~state.tasks.stopping.take(rows)
            if nodes is not None:
                mine &= nodes.take(state.tasks.node.take(rows))
            if only_fixed:
                mine &= state.tasks.victim.take(rows) < 0
            self._known[known] = self._told(self._largest(resource, mine))
        return self._known[known]

    def in_the_way(self, places: Iterable[Footprint], resource: int) -> tuple[Holder, ...]:
        """The workloads with tasks on these places."""
        rows = self._on(places, np.flatnonzero(self._cycle.state.tasks.node >= 0))
        jobs = self._cycle.state.jobs
        return _first(
            self._holder(jobs.at(slot), self._sum(resource, held)) for slot, held in rows.items()
        )

    def giving_way(self, preemptor: "JobInfo", resource: int) -> tuple[Holder, ...]:
        """Terminating workloads whose capacity is reserved for a workload."""
        cycle = self._cycle
        given = self._stopped_for().get(preemptor.spec.uid)
        told = given is not None
        if given is None:
            given = self._stopping_on(held_places(cycle, preemptor))
        found = []
        for slot, rows in given.items():
            job = cycle.state.jobs.at(slot)
            amount = self._sum(resource, rows)
            other = job.queue != preemptor.queue
            borrowed = other and (told or self._is_over_quota(job))
            found.append(self._holder(job, amount, borrowed=borrowed))
        return _first(found)

    def _sum(self, resource: int, rows: list[int]) -> int:
        return int(self._held_by(resource, np.array(rows, np.int64)).sum())

    def _used(self) -> Counts:
        if self._rows is None:
            self._rows = self._cycle.state.tasks.used()
        return self._rows

    def _largest_kept(self, resource: int, mask: Bools, key: Hashable) -> Amounts:
        """``_largest`` on some nodes, cached until allocations or nodes change."""
        state = self._cycle.state
        kept, stamp = state.cache.largest, (state.queues.changes, state.nodes.version)
        known = kept.get((resource, key))
        if known is None or known[0] != stamp:
            there = mask.take(state.tasks.node.take(self._used()))
            known = kept[resource, key] = stamp, self._largest(resource, there)
        return known[1]

    def _told(self, amounts: Amounts) -> tuple[Holder, ...]:
        at = self._cycle.state.jobs.at
        return _first(self._holder(at(slot), amount) for slot, amount in amounts)

    def _largest(self, resource: int, chosen: Bools) -> Amounts:
        state, rows = self._cycle.state, self._used()
        if resource not in self._amounts:
            self._amounts[resource] = self._held_by(resource, rows)
        slots = state.tasks.job.take(rows)
        sums = np.bincount(slots, weights=self._amounts[resource] * chosen).astype(np.int64)
        best = _most(sums, state.jobs.created)
        return tuple(zip(best.tolist(), sums.take(best).tolist(), strict=True))

    def _held_by(self, resource: int, rows: Counts) -> Counts:
        """(r,) the amount of a resource that the tasks of these rows hold."""
        tasks = self._cycle.state.tasks
        if resource == 0:
            return tasks.gpu.take(rows)
        if resource < EXTENDED:
            held: Counts = tasks.host[resource - 1].take(rows)
            return held
        by_class = np.zeros(len(self._cycle.state.classes), np.int64)
        for cls, host in tasks.hosts.items():
            by_class[cls] = host[resource - 1] if len(host) >= resource else 0
        return by_class.take(tasks.cls.take(rows))

    def _stopped_for(self) -> dict[str, dict[int, list[int]]]:
        """Claimer's uid -> slot of the victim -> rows of the tasks that stop for it."""
        if self._given is None:
            self._given = {}
            slots = self._cycle.state.tasks.job
            for move in self._cycle.moves.log:
                if isinstance(move, ManyEvicted) and move.cause.preemptor is not None:
                    victims = self._given.setdefault(move.cause.preemptor.spec.uid, {})
                    for row in move.rows.tolist():
                        victims.setdefault(int(slots[row]), []).append(row)
                elif isinstance(move, Move) and move.kind is MoveKind.EVICT:
                    preemptor = move.cause.preemptor if move.cause else None
                    if preemptor is not None:
                        victims = self._given.setdefault(preemptor.spec.uid, {})
                        victims.setdefault(move.job.slot, []).append(move.job.rows[move.index])
        return self._given

    def _stopping_on(self, places: Iterable[Footprint]) -> dict[int, list[int]]:
        """Terminating tasks on these places, by workload."""
        tasks = self._cycle.state.tasks
        stopping = (tasks.stopping & ~tasks.stuck) | self._cycle.moves.evicted
        return self._on(places, np.flatnonzero(stopping))

    def _on(self, places: Iterable[Footprint], among: Counts) -> dict[int, list[int]]:
        """Task rows, out of ``among``, that overlap these places, by workload."""
        tasks, found, seen = self._cycle.state.tasks, dict[int, list[int]](), set[int]()
        nodes = tasks.node.take(among)
        for place in places:
            mask = device_mask(place.devices)
            for row in among.compress(nodes == place.node).tolist():
                if row not in seen and (not mask or int(tasks.mask[row]) & mask):
                    seen.add(row)
                    found.setdefault(int(tasks.job[row]), []).append(row)
        return found

    def _is_over_quota(self, job: "JobInfo") -> bool:
        state = self._cycle.state
        return state.over_quota.has(state.queues, job)

    def _holder(self, job: "JobInfo", amount: int, *, borrowed: bool | None = None) -> Holder:
        spec = job.spec
        if borrowed is None:
            borrowed = self._is_over_quota(job)
        return Holder(spec.project, spec.uid, spec.name, spec.user, amount, borrowed, job.started)


def _most(sums: Counts, created: Floats) -> Counts:
    """Slots of the workloads with the largest sums; of equal sums the oldest submissions."""
    if len(sums) <= LOOKED_AT:
        return np.flatnonzero(sums > 0)
    least = max(int(sums.max()), 1)
    if np.count_nonzero(sums == least) < LOOKED_AT:
        least = max(int(np.partition(sums, -LOOKED_AT)[-LOOKED_AT]), 1)
    larger, equal = np.flatnonzero(sums > least), np.flatnonzero(sums == least)
    if len(equal) > LOOKED_AT:
        equal = equal.take(np.argsort(created.take(equal), kind="stable")[:LOOKED_AT])
    return np.concatenate([larger, equal])


def held_places(cycle: "Cycle", job: "JobInfo") -> list[Footprint]:
    """The places reserved for a job after what the cycle decided, in the order of its tasks."""
    uid = job.spec.uid
    single = cycle.moves.reserved.get(uid, {})
    found = [single[index] for index in sorted(single)]
    if uid in cycle.moves.reserved_many:
        for move in cycle.moves.log:
            if isinstance(move, ManyReserved) and move.job is job:
                cls = job.shape.classes[move.indices[0]]
                host = cycle.state.classes.host(cls)
                counted = cycle.state.classes.request(cls).counted_milli
                pairs = zip(move.nodes.tolist(), move.masks.tolist(), strict=True)
                found += [
                    Footprint(n, devices_of(mask), MILLI, host, counted=counted)
                    for n, mask in pairs
                ]
    return found


def _first(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    holding = [holder for holder in holders if holder.amount > 0]
    return tuple(sorted(holding, key=lambda h: (-h.amount, not h.borrowed, h.since, h.uid))[:MOST])
