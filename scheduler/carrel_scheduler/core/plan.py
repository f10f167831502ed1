"""The plan of a cycle: bindings, evictions, reservations, and a reason for all that waits.

A plan may hold tens of thousands of decisions, so it keeps the cycle's log and is made into
objects only when it is read. Read it before the state changes: reasons and the order of
service are worked out when asked for, on the state that was decided upon.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import repeat

import msgspec

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause, ManyEvicted, ManyReserved, Move, MoveKind
from carrel_scheduler.core.events import Devices, Place
from carrel_scheduler.core.explaining.explanations import Reasons, service_order
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.queues.rules import NO_BOUND, RESOURCES
from carrel_scheduler.core.queues.usage import RESOURCE_NAMES
from carrel_scheduler.core.reasons import Reason, ReasonClass
from carrel_scheduler.core.work.jobs import JobInfo
from carrel_scheduler.core.work.tasks import devices_of


class Binding(msgspec.Struct, gc=False):
    """Start this task at this place now: the capacity is idle."""

    uid: str
    index: int
    node: str
    devices: Devices
    slots: int = 0


class Eviction(msgspec.Struct, frozen=True, gc=False):
    """Stop these tasks with their grace period; ``reason`` says for whom.

    Attributes:
        indices: the tasks; empty means all that run.
        moved: places are reserved for it elsewhere in the same plan.
    """

    uid: str
    reason: Reason
    indices: tuple[int, ...] = ()
    moved: bool = False


class Nomination(msgspec.Struct, gc=False):
    """Reserve these places for pending tasks; none ends the reservation."""

    uid: str
    places: tuple[Place, ...]
    indices: tuple[int, ...] = ()


class Removal(msgspec.Struct, frozen=True, gc=False):
    """Remove a MIG instance that nobody uses, before the binding that needs its capacity."""

    node: str
    device: int
    slots: int


class Plan:
    """The decisions of a cycle, to be carried out in the order of the attributes.

    Attributes:
        removals: MIG instances in the way of a binding.
        bindings, evictions, nominations: what their classes say.
        reasons, queue: why everything waits, in which order it is served.
        fair_share: by queue.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._version = cycle.state.version
        self._reasons_given: dict[int, Reason] = {}
        self._explained: tuple[int, Reasons] | None = None

    @property
    def reasons(self) -> Reasons:
        """The reason of each pending workload, by uid: why it waits, or that it starts.

        Before the plan is carried out with what was decided; afterwards of the state as it is when
        asked. Each is worked out when it is looked at.
        """
        state = self._cycle.state
        if self._explained is None or self._explained[0] != state.version:
            told = self._version == state.version
            cycle = self._cycle if told else Cycle(state, self._cycle.now)
            self._explained = (state.version, Reasons(cycle))
        return self._explained[1]

    @cached_property
    def queue(self) -> tuple[str, ...]:
        """The uids of all waiting workloads in the order of service, those that start too."""
        return service_order(self._cycle.state, self._cycle.queue_usage.total)

    @property
    def fair_share(self) -> dict[str, int]:
        """GPU thousandths per queue in this cycle."""
        queue_usage = self._cycle.queue_usage
        names = enumerate(queue_usage.table.names)
        return {name: queue_usage.fair[slot][0] for slot, name in names if name}

    @property
    def version(self) -> int:
        """The version of the state that was decided upon."""
        return self._version

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """The tasks that start, in the order of the decisions."""
        names = self._cycle.state.nodes.names
        return tuple(
            Binding(job.spec.uid, index, names[place.node], place.devices, place.slots)
            for job, index, place in self._starts()
        )

    @cached_property
    def _stays(self) -> frozenset[tuple[str, int]]:
        """Tasks that were stopped and then given their own place again: nothing happens to them."""
        found, tasks, held = [], self._cycle.state.tasks, self._cycle.moves.reserved
        for uid in held:
            job = self._cycle.state.jobs.get(uid)
            for index, place in held[uid].items():
                row = job.rows.get(index)
                if row is not None and place == tasks.footprint(row):
                    found.append((uid, index))
        return frozenset(found)

    @cached_property
    def evictions(self) -> tuple[Eviction, ...]:
        """Workloads that stop, whole or in part, in the order in which they were decided."""
        stays, held = self._stays, self._cycle.moves.reserved
        many: list[Eviction] = []
        stopped: dict[str, tuple[JobInfo, Cause, list[int]]] = {}
        for move in self._cycle.moves.log:
            if isinstance(move, ManyEvicted):
                many += self._evicted_many(move)
            elif isinstance(move, Move) and move.cause is not None:
                job = move.job
                if (job.spec.uid, move.index) not in stays:
                    stopped.setdefault(job.spec.uid, (job, move.cause, []))[2].append(move.index)
        for uid, (job, cause, indices) in stopped.items():
            whole = len(indices) + len(job.halted) == len(job.rows)
            moved = uid in held and all(index in held[uid] for index in indices)
            which = () if whole else tuple(sorted(indices))
            many.append(Eviction(uid, self._reason(cause), which, moved))
        return tuple(many)

    def _evicted_many(self, move: ManyEvicted) -> list[Eviction]:
        jobs, tasks = self._cycle.state.jobs, self._cycle.state.tasks
        reason = self._reason(move.cause)
        slots = tasks.job.take(move.rows)
        if bool((jobs.placed.take(slots) == 1).all()):
            uids = map(jobs.uids.__getitem__, slots.tolist())
            return list(map(Eviction, uids, repeat(reason)))
        stopped: dict[int, list[int]] = {}
        for slot, index in zip(slots.tolist(), tasks.index.take(move.rows).tolist(), strict=True):
            stopped.setdefault(slot, []).append(index)
        found = []
        for slot, indices in stopped.items():
            job = jobs.at(slot)
            whole = len(indices) + len(job.halted) == len(job.rows)
            found.append(Eviction(job.spec.uid, reason, () if whole else tuple(sorted(indices))))
        return found

    def _reason(self, cause: Cause) -> Reason:
        reason = self._reasons_given.get(id(cause))
        if reason is None:
            reason = self._reasons_given[id(cause)] = _reason_of(self._cycle, cause)
        return reason

    @cached_property
    def nominations(self) -> tuple[Nomination, ...]:
        """Reservations that end, then the new ones."""
        moves, state = self._cycle.moves, self._cycle.state
        ends, new = [], []
        for uid in sorted(moves.reserved.keys() | state.reserved.keys()):
            before = dict(state.jobs.get(uid).reservation)
            after = {
                index: place
                for index, place in moves.reserved.get(uid, {}).items()
                if (uid, index) not in self._stays
            }
            ends_by_start = uid in moves.started
            if before == after and not ends_by_start:
                continue
            if before and not ends_by_start:
                ends.append(Nomination(uid, ()))
            if after:
                new.append(self._nomination(uid, after))
        return (*ends, *new, *self._many_held())

    @cached_property
    def removals(self) -> tuple[Removal, ...]:
        """MIG instances that nobody uses and that lie in the way of a binding."""
        state, found = self._cycle.state, []
        for job, index, place in self._starts():
            request = job.shape.requests[index]
            for device in place.devices if place.slots else ():
                for profile, bits in state.warm.on(place.node, device):
                    if bits & place.slots and (profile, bits) != (request.mig_profile, place.slots):
                        found.append(Removal(state.nodes.names[place.node], device, bits))
        return tuple(dict.fromkeys(found))

    def _nomination(self, uid: str, places: dict[int, Footprint]) -> Nomination:
        names = self._cycle.state.nodes.names
        indices = tuple(sorted(places))
        held = tuple(
            (names[places[index].node], places[index].devices, places[index].slots)
            for index in indices
        )
        return Nomination(uid, held, indices)

    def _many_held(self) -> Iterator[Nomination]:
        names = self._cycle.state.nodes.names
        for move in self._cycle.moves.log:
            if isinstance(move, ManyReserved):
                known: dict[int, Devices] = {}
                masks = move.masks.tolist()
                for mask in masks:
                    if mask not in known:
                        known[mask] = devices_of(mask)
                places = tuple(
                    (names[node], known[mask], 0)
                    for node, mask in zip(move.nodes.tolist(), masks, strict=True)
                )
                yield Nomination(move.job.spec.uid, places, move.indices)

    def _starts(self) -> Iterator[tuple[JobInfo, int, Footprint]]:
        started = {uid: dict(places) for uid, places in self._cycle.moves.started.items()}
        for move in self._cycle.moves.log:
            if isinstance(move, Move) and move.kind is MoveKind.START:
                place = started.get(move.job.spec.uid, {}).pop(move.index, None)
                if place is not None:
                    yield move.job, move.index, place


def _reason_of(cycle: Cycle, cause: Cause) -> Reason:
    """The reason behind a cause.

    ``bound`` is the quota of the preemptor's queue when it stays within it, 0 when it goes beyond;
    ``detail`` the group of nodes that the quota is for, if it is for one.
    """
    preemptor = cause.preemptor
    if preemptor is None:
        return Reason(ReasonClass.EVICTED, cause.token, nodes=cause.nodes)
    demand = preemptor.shape.first
    asked = next((r for r in RESOURCES if demand[r]), 0)
    quota = cycle.queue_usage.quota[preemptor.queue][asked]
    within = cause.within_quota and quota < NO_BOUND
    return Reason(
        ReasonClass.EVICTED,
        cause.token,
        resource=RESOURCE_NAMES[asked],
        requested=demand[asked],
        bound=cause.bound if cause.group else quota if within else 0,
        project=preemptor.spec.project,
        workload=preemptor.spec.name,
        workload_uid=preemptor.spec.uid,
        detail=cause.group,
    )
