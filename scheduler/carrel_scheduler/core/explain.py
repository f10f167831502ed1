"""The one reason of every waiting workload that does not start, with the facts behind it.

Looked at in this order: its room is on its way; a limit or quota bars it; no node is large enough;
the room went to those served before it; the room is held for somebody; the room is scattered; too
little is free. Workloads of one kind share the facts, so each kind is looked into once.
"""

from dataclasses import replace

from carrel_scheduler.core.barriers import Barrier, barrier
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.holders import (
    Holders,
    fixed_holders,
    project_holders,
)
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.order import kind_of
from carrel_scheduler.core.possible import never_reason
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.room import Room, fitting
from carrel_scheduler.core.standings import RESOURCE_NAMES, RESOURCES
from carrel_scheduler.core.workloads import Record


class Explainer:
    """Makes the reasons of one cycle, after all actions."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._holders = Holders(cycle)
        self._before: Room | None = None
        self._known: dict[object, Reason] = {}

    def reasons(self) -> dict[str, Reason]:
        """By uid, for every waiting workload that does not start now."""
        found: dict[str, Reason] = {}
        for queue in self._cycle.queues.values():
            ahead = 0
            for record in queue:
                uid = record.spec.uid
                if uid in self._cycle.bound:
                    continue
                reason = self._held(record) if uid in self._cycle.held else self._kind(record)
                found[uid] = replace(reason, ahead=ahead) if ahead else reason
                ahead += 1
        return found

    def _kind(self, record: Record) -> Reason:
        kind = kind_of(record)
        if kind not in self._known:
            self._known[kind] = self._look(record)
        return self._known[kind]

    def _held(self, record: Record) -> Reason:
        """Its places are held: who is giving way."""
        cycle, uid = self._cycle, record.spec.uid
        places = cycle.promises[uid]
        asked = _main_resource(record)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.WAITS_FOR_ROOM,
            resource=RESOURCE_NAMES[asked],
            requested=record.demand[asked],
            project=record.spec.project,
            workload=record.spec.name,
            workload_uid=uid,
            holders=self._holders.giving_way(record, asked),
            nodes=tuple(sorted({name for name, _ in cycle.named(places)})),
        )

    def _look(self, record: Record) -> Reason:
        standing = self._cycle.standing(record)
        never = never_reason(self._cycle.state, record)
        if never is not None:
            return never
        barred = barrier(standing, record.demand, preemptible=record.spec.preemptible)
        if barred is not None:
            return self._barred(record, barred)
        return self._no_room(record)

    def _barred(self, record: Record, found: Barrier) -> Reason:
        fixed = found.token is Token.NON_PREEMPTIBLE_BEYOND_QUOTA
        holders = fixed_holders if fixed else project_holders
        return Reason(
            ReasonClass.HELD_BACK,
            found.token,
            resource=RESOURCE_NAMES[found.resource],
            requested=found.asked,
            short=found.held + found.asked - found.bound,
            bound=found.bound,
            project=record.spec.project,
            holders=holders(self._cycle, record.project, found.resource),
        )

    def _no_room(self, record: Record) -> Reason:
        cycle, room = self._cycle, self._cycle.room
        eligible = cycle.eligible(record.spec.nodes)
        nodes = cycle.state.nodes
        devices = (nodes.usable & nodes.schedulable).sum(axis=0)
        if not self._fits(record, fitting(record.shape, eligible, devices, nodes.capacity)):
            return self._no_node(record, eligible, devices, nodes.capacity)
        if cycle.bindings and self._fits_before(record, eligible):
            return self._simple(record, Token.QUEUED_BEHIND)
        ignoring = fitting(record.shape, eligible, self._free_devices(), room.free.host)
        if self._fits(record, ignoring):
            return self._held_for_another(record, ignoring)
        return self._too_little(record, eligible)

    def _too_little(self, record: Record, eligible: Bools) -> Reason:
        cycle, room = self._cycle, self._cycle.room
        nodes = cycle.state.nodes
        idle = (room.idle_devices * MILLI, room.idle_host[0], room.idle_host[1])
        free = [int((amount * eligible).sum()) for amount in idle]
        scarce = next((r for r in RESOURCES if free[r] < record.demand[r]), None)
        if scarce is None:
            return self._no_node(record, eligible, room.idle_devices, room.idle_host)
        capacity = (
            (nodes.usable & nodes.schedulable).sum(axis=0) * MILLI,
            nodes.capacity[0],
            nodes.capacity[1],
        )
        standing = cycle.standing(record)
        borrowing = not standing.within(standing.quota, record.demand)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.QUOTA_USED if borrowing else Token.WAITS_FOR_ROOM,
            resource=RESOURCE_NAMES[scarce],
            requested=record.demand[scarce],
            short=record.demand[scarce] - free[scarce],
            bound=standing.quota[scarce] if borrowing else int((capacity[scarce] * eligible).sum()),
            project=record.spec.project,
            holders=self._holders.of(scarce, record.spec.nodes),
        )

    def _no_node(self, record: Record, eligible: Bools, devices: Counts, host: Counts) -> Reason:
        """No single node has enough: the request of one task against the largest node's room."""
        largest = [int((amount * eligible).max(initial=0)) for amount in (devices * MILLI, *host)]
        request = record.spec.request.as_tuple()
        scarce = next((r for r in RESOURCES if largest[r] < request[r]), _main_resource(record))
        return Reason(
            ReasonClass.NOT_NOW,
            Token.NO_NODE_FITS,
            resource=RESOURCE_NAMES[scarce],
            requested=request[scarce],
            short=max(0, request[scarce] - largest[scarce]),
            bound=largest[scarce],
            project=record.spec.project,
            holders=self._holders.of(scarce, record.spec.nodes),
            nodes=tuple(sorted(record.spec.nodes or ())),
        )

    def _held_for_another(self, record: Record, counts: Counts) -> Reason:
        """The free room is promised: to whom, the largest promise on useful nodes first."""
        cycle = self._cycle
        best: tuple[int, str] | None = None
        for uid, places in sorted(cycle.promises.items()):
            held = sum(max(1, len(place.devices)) for place in places if counts[place.node])
            if held and (best is None or held > best[0]):
                best = (held, uid)
        other = cycle.held.get(best[1]) if best else None
        asked = _main_resource(record)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.HELD_FOR,
            resource=RESOURCE_NAMES[asked],
            requested=record.demand[asked],
            project=other.spec.project if other else "",
            workload=other.spec.name if other else "",
            workload_uid=other.spec.uid if other else "",
        )

    def _simple(self, record: Record, token: Token) -> Reason:
        asked = _main_resource(record)
        return Reason(
            ReasonClass.NOT_NOW,
            token,
            resource=RESOURCE_NAMES[asked],
            requested=record.demand[asked],
            project=record.spec.project,
            holders=self._holders.of(asked, record.spec.nodes),
        )

    def _fits(self, record: Record, counts: Counts) -> bool:
        return int(counts.sum()) >= record.shape[3]

    def _fits_before(self, record: Record, eligible: Bools) -> bool:
        if self._before is None:
            self._before = Room(self._cycle.state.nodes)
        return self._fits(record, self._before.counts(record.shape, eligible, soon=False))

    def _free_devices(self) -> Counts:
        nodes = self._cycle.state.nodes
        free: Counts = ((self._cycle.room.free.devices >= MILLI) & nodes.usable).sum(axis=0)
        return free


def _main_resource(record: Record) -> int:
    return next((r for r in RESOURCES if record.demand[r]), 0)
