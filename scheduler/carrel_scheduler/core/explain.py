"""The one reason of every waiting workload that does not start, with the facts behind it.

Looked at in this order: its room is on its way; a limit or quota bars it; no node is large enough;
the room went to those served before it; the room is held for somebody; something is short that
cannot be taken back either (`scarcity`). Workloads of one kind share the facts, so each kind is
looked into once.
"""

from dataclasses import replace

from carrel_scheduler.core.barriers import Barrier, barrier
from carrel_scheduler.core.blame import asked_resources, asking, to_blame
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.holders import (
    Holders,
    fixed_holders,
    project_holders,
)
from carrel_scheduler.core.layers import Bools, Counts, Footprint
from carrel_scheduler.core.order import kind_of
from carrel_scheduler.core.possible import never_reason
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.resources import MILLI, UNLIMITED
from carrel_scheduler.core.room import Room, fitting
from carrel_scheduler.core.scarcity import Reach
from carrel_scheduler.core.standings import RESOURCE_NAMES, Standing
from carrel_scheduler.core.workloads import Record, Shape


class Explainer:
    """Makes the reasons of one cycle, after all actions."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._holders = Holders(cycle)
        self._reach = Reach(cycle)
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
        asked = self._missing_at(record, places)
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
            scarce = self._scarce_in(record, eligible, devices, nodes.capacity)
            return self._no_node(record, eligible, devices, nodes.capacity, scarce)
        if cycle.bindings and self._fits_before(record, eligible):
            return self._queued_behind(record, eligible)
        ignoring = fitting(record.shape, eligible, self._free_devices(), room.free.host)
        if self._fits(record, ignoring):
            return self._held_for_another(record, ignoring)
        if self._reach.could_get(record, record.shape):
            return self._queued_behind(record, eligible)
        return self._too_little(record, eligible)

    def _too_little(self, record: Record, eligible: Bools) -> Reason:
        """About what is short even after everything that may be taken back."""
        cycle, room = self._cycle, self._cycle.room
        scarce = self._reach.scarce(record)
        free = int((_by_resource(room.idle_devices, room.idle_host)[scarce] * eligible).sum())
        if free >= record.demand[scarce]:
            return self._no_node(record, eligible, room.idle_devices, room.idle_host, scarce)
        nodes = cycle.state.nodes
        healthy = (nodes.usable & nodes.schedulable).sum(axis=0)
        capacity = _by_resource(healthy, nodes.capacity)[scarce]
        standing = cycle.standing(record)
        borrowing = _borrows(standing, record, scarce)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.QUOTA_USED if borrowing else Token.WAITS_FOR_ROOM,
            resource=RESOURCE_NAMES[scarce],
            requested=record.demand[scarce],
            short=record.demand[scarce] - free,
            bound=standing.quota[scarce] if borrowing else int((capacity * eligible).sum()),
            project=record.spec.project,
            holders=self._holders.of(scarce, record.spec.nodes),
            kept=not borrowing and self._reach.others_come_back(record, scarce),
        )

    def _no_node(
        self, record: Record, eligible: Bools, devices: Counts, host: Counts, scarce: int
    ) -> Reason:
        """No single node has enough: the request of one task against the largest node's room.

        Where a node has enough of it, but not of the rest, the room is scattered.
        """
        shape, amounts = record.shape, _by_resource(devices, host)[scarce]
        request = record.spec.request.as_tuple()[scarce]
        largest = int((amounts * eligible).max(initial=0))
        if largest < request:
            others = [other for other in asked_resources(shape) if other != scarce]
            rest = asking((shape[0], shape[1], shape[2], 1, shape[4]), others)
            there = fitting(rest, eligible, devices, host) > 0
            largest = int((amounts * there).max(initial=0)) or largest
        return Reason(
            ReasonClass.NOT_NOW,
            Token.NO_NODE_FITS,
            resource=RESOURCE_NAMES[scarce],
            requested=request,
            short=max(0, request - largest),
            bound=largest,
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
        room = cycle.room
        eligible = cycle.eligible(record.spec.nodes)
        asked = self._scarce_in(record, eligible, room.idle_devices, room.idle_host)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.HELD_FOR,
            resource=RESOURCE_NAMES[asked],
            requested=record.demand[asked],
            project=other.spec.project if other else "",
            workload=other.spec.name if other else "",
            workload_uid=other.spec.uid if other else "",
        )

    def _queued_behind(self, record: Record, eligible: Bools) -> Reason:
        room = self._cycle.room
        asked = self._scarce_in(record, eligible, room.idle_devices, room.idle_host)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.QUEUED_BEHIND,
            resource=RESOURCE_NAMES[asked],
            requested=record.demand[asked],
            project=record.spec.project,
            holders=self._holders.of(asked, record.spec.nodes),
        )

    def _scarce_in(self, record: Record, eligible: Bools, devices: Counts, host: Counts) -> int:
        """The resource to blame in this room, whatever may be taken back."""

        def can_be_had(shape: Shape) -> bool:
            return int(fitting(shape, eligible, devices, host).sum()) >= shape[3]

        return to_blame(record.shape, can_be_had)

    def _missing_at(self, record: Record, places: tuple[Footprint, ...]) -> int:
        """The first resource that is not free at the places held for a workload."""
        free = self._cycle.state.nodes.free
        for place in places:
            if any(free.devices[device, place.node] < place.share for device in place.devices):
                return 0
        for resource in (1, 2):
            wanted: dict[int, int] = {}
            for place in places:
                asked = record.spec.request.as_tuple()[resource]
                wanted[place.node] = wanted.get(place.node, 0) + asked
            if any(free.host[resource - 1, node] < amount for node, amount in wanted.items()):
                return resource
        return next(iter(asked_resources(record.shape)), 0)

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


def _by_resource(devices: Counts, host: Counts) -> tuple[Counts, Counts, Counts]:
    """(N,) amounts in the order of the resources; ``devices`` counts whole ones."""
    return devices * MILLI, host[0], host[1]


def _borrows(standing: Standing, record: Record, resource: int) -> bool:
    """Whether it reaches beyond what its project is guaranteed of this resource."""
    quota = standing.quota[resource]
    return quota != UNLIMITED and standing.used[resource] + record.demand[resource] > quota
