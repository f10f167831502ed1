"""What is short for a workload that fits on the empty cluster but not now, and who has it.

A question to the reasons: what some workload asks for next, and with which rights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.capacity.views import GPU, Rooms, Sight
from carrel_scheduler.core.devices.classes import Form
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.explaining.holders import Holders
from carrel_scheduler.core.explaining.impossible import (
    largest_with_rest,
    needs,
    resource_name,
    to_blame,
)
from carrel_scheduler.core.explaining.reclaimable import Asker, Reach
from carrel_scheduler.core.layers import LARGEST, Bools, Footprint
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.reasons import Holder, Reason, ReasonClass, Token
from carrel_scheduler.core.resources import NONE, Triple
from carrel_scheduler.core.work.jobs import Job
from carrel_scheduler.core.work.shapes import Shape

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.cycle.cycle import Cycle
    from carrel_scheduler.core.work.jobs import WaitingRow


QUOTAS = 3
"""Resources below have quotas, so claims are about them."""


@dataclass(frozen=True)
class Case:
    """One question.

    Attributes:
        queue: the slot of its queue.
        shape, step: the tasks that are looked for together.
        demand: what they count for; ``fixed_demand`` the non-preemptible part.
        kind, priority: of the workload.
        fresh: none of its tasks holds room.
    """

    queue: int
    shape: Shape
    step: tuple[int, ...]
    demand: Triple
    fixed_demand: Triple
    kind: Preemptibility
    priority: int
    fresh: bool

    @classmethod
    def of_row(cls, row: "WaitingRow") -> "Case":
        """What all jobs of a row ask."""
        shape, kind = row.shape, row.preemptible
        fixed = NONE if kind is Preemptibility.YES else shape.first
        return cls(
            row.queue, shape, shape.first_step, shape.first, fixed, kind, row.priority, fresh=True
        )

    @classmethod
    def of_job(cls, cycle: "Cycle", job: "Job", step: tuple[int, ...]) -> "Case":
        """What one job asks for its next step."""
        spec, demand = job.spec, cycle.demand(job, step)
        fixed = demand if cycle.is_fixed(job) else NONE
        fresh = not job.rows
        return cls(
            job.queue, job.shape, step, demand, fixed, spec.preemptible, spec.priority, fresh
        )

    @cached_property
    def needs(self) -> dict[int, int]:
        """Class -> how many tasks of it are looked for."""
        return needs(self.shape, self.step)

    def project(self, state: "Columns") -> str:
        """The name of its queue."""
        return state.queues.rule(self.queue).name


class Shortage:
    """Facts about too little room."""

    def __init__(self, cycle: "Cycle", rooms: Rooms, holders: Holders, reach: Reach) -> None:
        self._cycle, self._rooms, self._holders, self._reach = cycle, rooms, holders, reach
        self._free: dict[tuple[Sight, int, int], int] = {}
        self._short: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        self._pieces: dict[tuple[int, tuple[int, ...], int], int] = {}
        self._wanted: dict[tuple[int, tuple[int, ...]], dict[int, int]] = {}

    # Questions

    def fits(self, case: Case, sight: Sight, resources: Sequence[int] | None = None) -> bool:
        """Whether each kind of its tasks finds room often enough, and all of them by sums."""
        rooms = self._rooms
        if resources is None and len(case.needs) == 1:
            ((cls, need),) = case.needs.items()
            return rooms.total(sight, cls) >= need
        if resources is None:
            resources = list(self._asked(case))
        for cls, need in case.needs.items():
            asked = rooms.asked(cls)
            mine = tuple(resource for resource in resources if resource in asked)
            if rooms.total(sight, cls, mine) < need:
                return False
        return len(case.needs) == 1 or self._fits_in_sum(case, sight, resources)

    def obtainable(self, case: Case, *, reclaiming: bool = False) -> bool:
        """Whether by sums others could be made to give it enough, and would have to.

        ``reclaiming``: some of it would be taken of other queues.
        """
        priority = -LARGEST if reclaiming else case.priority
        return any(self._takeable(case, priority)) and self._unobtainable(case) is None

    def missing_at(self, job: Job, places: Sequence[Footprint]) -> int:
        """The first resource that is not free at the places held for a workload."""
        free = self._cycle.room.free
        for place in places:
            if any(free.devices[device, place.node] < place.share for device in place.devices):
                return GPU
        wanted: dict[tuple[int, int], int] = {}
        for place in places:
            for row, amount in enumerate(place.host):
                wanted[row, place.node] = wanted.get((row, place.node), 0) + amount
        for (row, node), amount in sorted(wanted.items()):
            if free.host[row, node] < amount:
                return row + 1
        return next(iter(self._rooms.asked(job.shape.cls)), GPU)

    def held_amount(self, places: Sequence[Footprint], resource: int) -> int:
        """What places have of a resource."""
        if resource == GPU:
            return sum(place.share * len(place.devices) for place in places)
        row = resource - 1
        return sum(place.host[row] for place in places if len(place.host) > row)

    def _fits_in_sum(self, case: Case, sight: Sight, resources: Sequence[int]) -> bool:
        asked = self._asked(case)
        return all(asked.get(r, 0) <= self._amount(case, sight, r) for r in resources)

    # Reasons

    def queued_behind(self, case: Case) -> Reason:
        """The room went to those served before it."""
        scarce = self._scarce_in(case, Sight.IDLE)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.QUEUED_BEHIND,
            resource=self._name(scarce),
            requested=self._asked(case).get(scarce, 0),
            holders=self._holders_of(case, scarce),
        )

    def held_for_another(self, case: Case) -> Reason:
        """The free room is promised: to whom, the largest promise on useful nodes first."""
        cycle, useful = self._cycle, self._useful(case)
        best: tuple[int, str] = (0, "")
        for uid in sorted(cycle.moves.held):
            places = cycle.moves.held[uid].values()
            held = sum(max(1, len(place.devices)) for place in places if useful[place.node])
            if held > best[0]:
                best = (held, uid)
        many = min(cycle.moves.held_many, default="")
        other = cycle.state.jobs.by_uid.get(best[1] or many)
        scarce = self._scarce_in(case, Sight.IDLE)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.HELD_FOR,
            resource=self._name(scarce),
            requested=self._asked(case).get(scarce, 0),
            project=other.spec.project if other else "",
            workload=other.spec.name if other else "",
            workload_uid=other.spec.uid if other else "",
        )

    def scattered(self, case: Case) -> Reason:
        """Enough for every task by itself, not for all of them."""
        scarce = self._scarce_in(case, Sight.IDLE)
        return self._no_node(case, scarce)

    def too_little(self, case: Case) -> Reason:
        """About what is short even after everything that may be taken back."""
        scarce, kept = self._scarce(case)
        asked = self._asked(case)[scarce]
        cls = next(iter(case.needs))
        free = self._in_pieces(case, cls, scarce)
        beyond = self._beyond(case, scarce) if scarce < QUOTAS else None
        borrowing = beyond is not None
        divided = scarce == GPU and self._cycle.state.classes.kinds[cls].form is Form.MIG
        if divided and not (borrowing and free < asked):
            return self._no_instance(case, cls)
        if free >= asked:
            return self._no_node(case, scarce)
        bound = self._amount(case, Sight.EMPTY, scarce)
        if beyond is not None:
            bound = self._cycle.standings.quota[beyond][scarce]
        return Reason(
            ReasonClass.NOT_NOW,
            Token.QUOTA_USED if borrowing else Token.WAITS_FOR_ROOM,
            resource=self._name(scarce),
            requested=asked,
            short=asked - free,
            bound=bound,
            project="" if beyond is None else self._cycle.standings.table.names[beyond],
            holders=self._holders_of(case, scarce),
            kept=kept and not borrowing,
        )

    def _no_node(self, case: Case, scarce: int) -> Reason:
        """No single node has enough: one task against the largest node's room.

        Where a node has enough of it, but not of the rest, the room is scattered.
        """
        cls = self._failing(case)
        request = self._rooms.asked(cls).get(scarce, 0)
        amounts = self._rooms.pieces(Sight.IDLE, scarce, cls)
        largest = int((amounts * self._rooms.parts(Sight.IDLE, cls).mask).max(initial=0))
        if largest < request:
            largest = largest_with_rest(self._rooms, Sight.IDLE, cls, scarce) or largest
        where = self._cycle.state.classes.request(cls).where
        return Reason(
            ReasonClass.NOT_NOW,
            Token.NO_NODE_FITS,
            resource=self._name(scarce),
            requested=request,
            short=max(0, request - largest),
            bound=largest,
            holders=self._holders_of(case, scarce),
            nodes=tuple(sorted(where.nodes or ())),
        )

    def _no_instance(self, case: Case, cls: int) -> Reason:
        need, free = case.needs[cls], self._rooms.total(Sight.IDLE, cls)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.NO_MIG_INSTANCE,
            resource="mig",
            requested=need,
            short=max(0, need - free),
            bound=self._rooms.total(Sight.EMPTY, cls),
            holders=self._holders_of(case, GPU),
            detail=self._cycle.state.classes.request(cls).mig_profile,
        )

    # What is short

    def _scarce(self, case: Case) -> tuple[int, bool]:
        """The resource to blame, and whether others that it lacks could be taken back."""
        asked, lacking = self._asked(case), self._lacking(case)
        if len(lacking) == 1:
            return lacking[0], False
        found = self._unobtainable(case) if lacking else None
        if found is None:
            return self._scarce_in(case, Sight.SOON), False
        takeable = self._takeable(case)
        others = [r for r in lacking if r != found and r < QUOTAS and takeable[r]]
        return found, any(
            asked[r] <= self._amount(case, Sight.SOON, r) + takeable[r] for r in others
        )

    def _lacking(self, case: Case) -> list[int]:
        """The resources of which there is too little, each by itself."""
        key = (case.shape.id, case.step)
        found = self._short.get(key)
        if found is None:
            asked = self._asked(case)
            found = [r for r in asked if not self.fits(case, Sight.SOON, [r])]
            self._short[key] = found
        return found

    def _unobtainable(self, case: Case) -> int | None:
        """The first resource of which there is too little even with all that may be taken."""
        takeable = self._takeable(case)
        for resource, amount in self._asked(case).items():
            if resource < QUOTAS:
                most = self._amount(case, Sight.SOON, resource) + takeable[resource]
                if amount > most:
                    return resource
            elif not any(takeable) and not self.fits(case, Sight.SOON, [resource]):
                return resource
        return None

    def _scarce_in(self, case: Case, sight: Sight) -> int:
        """The resource to blame in some room, whatever may be taken back."""
        asked = list(self._asked(case))
        if self.fits(case, sight):
            return asked[0] if asked else GPU
        return to_blame(asked, lambda these: self.fits(case, sight, these))

    def _takeable(self, case: Case, priority: int | None = None) -> Triple:
        """What could be taken for it; ``priority``: if it had another one than it has."""
        free = case.kind is Preemptibility.YES or not any(case.fixed_demand)
        asking = case.priority if priority is None else priority
        return self._reach.takeable(Asker(case.queue, asking, case.demand, preemptible=free))

    def _beyond(self, case: Case, resource: int) -> int | None:
        """The nearest queue that would reach beyond what it is guaranteed of this resource."""
        standings = self._cycle.standings
        for slot in standings.table.path[case.queue]:
            quota = standings.quota[slot][resource]
            held = standings.used[slot][resource] + case.demand[resource]
            if quota != NO_BOUND and held > quota:
                return slot
        return None

    # Amounts

    def _asked(self, case: Case) -> dict[int, int]:
        """Resource -> what its step asks for in all, GPUs first."""
        key = (case.shape.id, case.step)
        known = self._wanted.get(key)
        if known is not None:
            return known
        found: dict[int, int] = {}
        for cls, need in case.needs.items():
            for resource, amount in self._rooms.asked(cls).items():
                found[resource] = found.get(resource, 0) + need * amount
        self._wanted[key] = known = dict(sorted(found.items()))
        return known

    def _amount(self, case: Case, sight: Sight, resource: int) -> int:
        """How much of a resource there is on the nodes it may use."""
        known = (sight, resource, next(iter(case.needs)) if len(case.needs) == 1 else -1)
        if known[2] < 0:
            return int((self._rooms.amounts(sight, resource) * self._useful(case)).sum())
        found = self._free.get(known)
        if found is None:
            mask = self._rooms.parts(sight, known[2]).mask
            found = int((self._rooms.amounts(sight, resource) * mask).sum())
            self._free[known] = found
        return found

    def _in_pieces(self, case: Case, cls: int, resource: int) -> int:
        """How much is idle in pieces that are of use: whole devices for whole ones."""
        key = (case.shape.id, case.step, resource)
        found = self._pieces.get(key)
        if found is None:
            pieces = self._rooms.pieces(Sight.IDLE, resource, cls)
            found = self._pieces[key] = int((pieces * self._useful(case)).sum())
        return found

    def _useful(self, case: Case) -> Bools:
        masks = [self._rooms.parts(Sight.EMPTY, cls).mask for cls in case.needs]
        found: Bools = np.logical_or.reduce(masks)
        return found

    def _failing(self, case: Case) -> int:
        """The first class of its tasks that does not fit, or the first of all."""
        for cls, need in case.needs.items():
            if self._rooms.total(Sight.IDLE, cls) < need:
                return cls
        return next(iter(case.needs))

    def _holders_of(self, case: Case, resource: int) -> tuple[Holder, ...]:
        state = self._cycle.state
        requests = [state.classes.request(cls) for cls in case.needs]
        key = frozenset(state.eligible.key(request) for request in requests)
        return self._holders.of(resource, self._useful(case), key)

    def _name(self, resource: int) -> str:
        return resource_name(self._cycle.state, resource)
