"""The shortage of a workload that fits on the empty cluster but not now, and its holders.

A ``Question`` is what a workload asks for next, and with which rights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.capacity.views import GPU, CapacityView, CapacityViews
from carrel_scheduler.core.cycle.group_usage import NO_GROUP
from carrel_scheduler.core.devices.classes import GpuForm
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.explaining.holders import Holders
from carrel_scheduler.core.explaining.impossible import (
    largest_with_rest,
    limiting_resource,
    needs,
    resource_name,
)
from carrel_scheduler.core.explaining.reclaimable import Preemptor, Reclaimable
from carrel_scheduler.core.layers import LARGEST, Bools, Footprint
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.reasons import Holder, Reason, ReasonClass, Token
from carrel_scheduler.core.resources import NONE, Triple
from carrel_scheduler.core.work.jobs import JobInfo
from carrel_scheduler.core.work.shapes import Shape

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.cycle.cycle import Cycle
    from carrel_scheduler.core.work.jobs import WaitingRow


QUOTAS = 3
"""Resources below this index have quotas, so reclaim is about them."""


@dataclass(frozen=True)
class Question:
    """A question about a shortage.

    Attributes:
        queue: the slot of its queue.
        shape, step: the tasks that are looked for together.
        demand: what they count for; ``fixed_demand`` the non-preemptible part.
        kind, priority: of the workload.
        fresh: none of its tasks holds an allocation.
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
    def of_row(cls, row: "WaitingRow") -> "Question":
        """The request that all jobs of a row have in common."""
        shape, kind = row.shape, row.preemptible
        fixed = NONE if kind is Preemptibility.YES else shape.first
        return cls(
            row.queue, shape, shape.first_step, shape.first, fixed, kind, row.priority, fresh=True
        )

    @classmethod
    def of_job(cls, cycle: "Cycle", job: "JobInfo", step: tuple[int, ...]) -> "Question":
        """The request of one job for its next step."""
        spec, demand = job.spec, cycle.demand(job, step)
        fixed = demand if cycle.is_fixed(job) else NONE
        fresh = not job.rows
        return cls(
            job.queue, job.shape, step, demand, fixed, spec.preemptible, spec.priority, fresh
        )

    @cached_property
    def needs(self) -> dict[int, int]:
        """The number of tasks of each class in the step."""
        return needs(self.shape, self.step)

    def project(self, state: "Columns") -> str:
        """The name of the workload's queue."""
        return state.queues.rule(self.queue).name


class Shortage:
    """Facts about too little capacity."""

    def __init__(
        self, cycle: "Cycle", views: CapacityViews, holders: Holders, reclaimable: Reclaimable
    ) -> None:
        self._cycle, self._views, self._holders, self._reclaimable = (
            cycle,
            views,
            holders,
            reclaimable,
        )
        self._free: dict[tuple[CapacityView, int, int], int] = {}
        self._short: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        self._pieces: dict[tuple[int, tuple[int, ...], int], int] = {}
        self._wanted: dict[tuple[int, tuple[int, ...]], dict[int, int]] = {}

    # Questions

    def fits(
        self, question: Question, view: CapacityView, resources: Sequence[int] | None = None
    ) -> bool:
        """Whether each kind of its tasks finds capacity often enough, and all of them by sums."""
        views = self._views
        if resources is None and len(question.needs) == 1:
            ((cls, need),) = question.needs.items()
            return views.total(view, cls) >= need
        if resources is None:
            resources = list(self._asked(question))
        for cls, need in question.needs.items():
            asked = views.asked(cls)
            mine = tuple(resource for resource in resources if resource in asked)
            if views.total(view, cls, mine) < need:
                return False
        return len(question.needs) == 1 or self._fits_in_sum(question, view, resources)

    def obtainable(self, question: Question, *, reclaiming: bool = False) -> bool:
        """Whether by sums others could be made to give it enough, and would have to.

        ``reclaiming``: some of it would be taken of other queues.
        """
        priority = -LARGEST if reclaiming else question.priority
        return any(self._takeable(question, priority)) and self._unobtainable(question) is None

    def missing_at(self, job: JobInfo, places: Sequence[Footprint]) -> int:
        """The first resource that is short at the places reserved for a workload."""
        free = self._cycle.free_capacity.free
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
        return next(iter(self._views.asked(job.shape.cls)), GPU)

    def held_amount(self, places: Sequence[Footprint], resource: int) -> int:
        """The amount of a resource in these places."""
        if resource == GPU:
            return sum(place.share * len(place.devices) for place in places)
        row = resource - 1
        return sum(place.host[row] for place in places if len(place.host) > row)

    def _fits_in_sum(
        self, question: Question, view: CapacityView, resources: Sequence[int]
    ) -> bool:
        asked = self._asked(question)
        return all(asked.get(r, 0) <= self._amount(question, view, r) for r in resources)

    # Reasons

    def queued_behind(self, question: Question) -> Reason:
        """The reason where workloads that are served before this one get the capacity."""
        scarce = self._scarce_in(question, CapacityView.IDLE)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.QUEUED_BEHIND,
            resource=self._name(scarce),
            requested=self._asked(question).get(scarce, 0),
            holders=self._holders_of(question, scarce),
        )

    def held_for_another(self, question: Question) -> Reason:
        """The free capacity is reserved; the largest reservation on useful nodes is named."""
        cycle, useful = self._cycle, self._useful(question)
        best: tuple[int, str] = (0, "")
        for uid in sorted(cycle.moves.reserved):
            places = cycle.moves.reserved[uid].values()
            held = sum(max(1, len(place.devices)) for place in places if useful[place.node])
            if held > best[0]:
                best = (held, uid)
        many = min(cycle.moves.reserved_many, default="")
        other = cycle.state.jobs.by_uid.get(best[1] or many)
        scarce = self._scarce_in(question, CapacityView.IDLE)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.HELD_FOR,
            resource=self._name(scarce),
            requested=self._asked(question).get(scarce, 0),
            project=other.spec.project if other else "",
            workload=other.spec.name if other else "",
            workload_uid=other.spec.uid if other else "",
        )

    def scattered(self, question: Question) -> Reason:
        """The reason where each task fits by itself, but not all tasks together."""
        scarce = self._scarce_in(question, CapacityView.IDLE)
        return self._no_node(question, scarce)

    def too_little(self, question: Question) -> Reason:
        """The reason where a resource is short even after all possible evictions."""
        scarce, kept = self._scarce(question)
        asked = self._asked(question)[scarce]
        cls = next(iter(question.needs))
        free = self._in_pieces(question, cls, scarce)
        beyond = self._beyond(question, scarce) if scarce < QUOTAS else None
        borrowing = beyond is not None
        divided = scarce == GPU and self._cycle.state.classes.kinds[cls].form is GpuForm.MIG
        if divided and not (borrowing and free < asked):
            return self._no_instance(question, cls)
        if free >= asked:
            return self._no_node(question, scarce)
        bound = self._amount(question, CapacityView.EMPTY, scarce)
        if beyond is not None:
            bound = self._cycle.queue_usage.quota[beyond][scarce]
        in_group = self._beyond_in_group(question) if scarce == GPU and beyond is None else None
        if in_group is not None:
            bound, borrowing = in_group[1], True
        return Reason(
            ReasonClass.NOT_NOW,
            Token.QUOTA_USED if borrowing else Token.WAITS_FOR_ROOM,
            resource=self._name(scarce),
            requested=asked,
            short=asked - free,
            bound=bound,
            project="" if beyond is None else self._cycle.queue_usage.table.names[beyond],
            holders=self._holders_of(question, scarce),
            kept=kept and not borrowing,
            detail="" if in_group is None else in_group[0],
        )

    def _no_node(self, question: Question, scarce: int) -> Reason:
        """The reason where no single node has enough: one task against the largest node's capacity.

        Where a node has enough of it, but not of the rest, the capacity is scattered.
        """
        cls = self._failing(question)
        request = self._views.asked(cls).get(scarce, 0)
        amounts = self._views.pieces(CapacityView.IDLE, scarce, cls)
        largest = int((amounts * self._views.parts(CapacityView.IDLE, cls).mask).max(initial=0))
        if largest < request:
            largest = largest_with_rest(self._views, CapacityView.IDLE, cls, scarce) or largest
        where = self._cycle.state.classes.request(cls).where
        return Reason(
            ReasonClass.NOT_NOW,
            Token.NO_NODE_FITS,
            resource=self._name(scarce),
            requested=request,
            short=max(0, request - largest),
            bound=largest,
            holders=self._holders_of(question, scarce),
            nodes=tuple(sorted(where.nodes or ())),
        )

    def _no_instance(self, question: Question, cls: int) -> Reason:
        need, free = question.needs[cls], self._views.total(CapacityView.IDLE, cls)
        return Reason(
            ReasonClass.NOT_NOW,
            Token.NO_MIG_INSTANCE,
            resource="mig",
            requested=need,
            short=max(0, need - free),
            bound=self._views.total(CapacityView.EMPTY, cls),
            holders=self._holders_of(question, GPU),
            detail=self._cycle.state.classes.request(cls).mig_profile,
        )

    # The scarce resource

    def _scarce(self, question: Question) -> tuple[int, bool]:
        """The resource to report as short; whether evictions could free enough of the others."""
        asked, lacking = self._asked(question), self._lacking(question)
        if len(lacking) == 1:
            return lacking[0], False
        found = self._unobtainable(question) if lacking else None
        if found is None:
            return self._scarce_in(question, CapacityView.SOON), False
        takeable = self._takeable(question)
        others = [r for r in lacking if r != found and r < QUOTAS and takeable[r]]
        return found, any(
            asked[r] <= self._amount(question, CapacityView.SOON, r) + takeable[r] for r in others
        )

    def _lacking(self, question: Question) -> list[int]:
        """The resources that are short when each is looked at by itself."""
        key = (question.shape.id, question.step)
        found = self._short.get(key)
        if found is None:
            asked = self._asked(question)
            found = [r for r in asked if not self.fits(question, CapacityView.SOON, [r])]
            self._short[key] = found
        return found

    def _unobtainable(self, question: Question) -> int | None:
        """The first resource of which there is too little even with all that may be taken."""
        takeable = self._takeable(question)
        for resource, amount in self._asked(question).items():
            if resource < QUOTAS:
                most = self._amount(question, CapacityView.SOON, resource) + takeable[resource]
                if amount > most:
                    return resource
            elif not any(takeable) and not self.fits(question, CapacityView.SOON, [resource]):
                return resource
        return None

    def _scarce_in(self, question: Question, view: CapacityView) -> int:
        """The resource that is short without any evictions."""
        asked = list(self._asked(question))
        if self.fits(question, view):
            return asked[0] if asked else GPU
        return limiting_resource(asked, lambda these: self.fits(question, view, these))

    def _takeable(self, question: Question, priority: int | None = None) -> Triple:
        """The amounts that could be taken for it; ``priority``: with another one than its own."""
        free = question.kind is Preemptibility.YES or not any(question.fixed_demand)
        asking = question.priority if priority is None else priority
        return self._reclaimable.takeable(
            Preemptor(question.queue, asking, question.demand, preemptible=free)
        )

    def _beyond(self, question: Question, resource: int) -> int | None:
        """The nearest queue whose quota of this resource would be exceeded."""
        queue_usage = self._cycle.queue_usage
        for slot in queue_usage.table.path[question.queue]:
            quota = queue_usage.quota[slot][resource]
            held = queue_usage.used[slot][resource] + question.demand[resource]
            if quota != NO_BOUND and held > quota:
                return slot
        return None

    def _beyond_in_group(self, question: Question) -> tuple[str, int] | None:
        """The group of nodes to which it is bound where it goes beyond a quota; and that quota.

        Of its queue, or the nearest one above that has any there.
        """
        usage = self._cycle.group_usage
        if usage is None or usage.quotas is None:
            return None
        found = set(usage.groups_of(np.flatnonzero(self._useful(question))).tolist())
        if len(found) != 1 or NO_GROUP in found:
            return None
        (group,) = found
        held, gpu = usage.quotas.of_group[group], question.demand[0]
        path = self._cycle.queue_usage.table.path[question.queue]
        if any(held.used[slot][0] + gpu <= held.quota[slot][0] for slot in path):
            return None
        bound = next((held.quota[slot][0] for slot in path if held.quota[slot][0]), 0)
        return usage.name(group), bound

    # Amounts

    def _asked(self, question: Question) -> dict[int, int]:
        """The amounts that the step asks for in all, by resource, GPUs first."""
        key = (question.shape.id, question.step)
        known = self._wanted.get(key)
        if known is not None:
            return known
        found: dict[int, int] = {}
        for cls, need in question.needs.items():
            for resource, amount in self._views.asked(cls).items():
                found[resource] = found.get(resource, 0) + need * amount
        self._wanted[key] = known = dict(sorted(found.items()))
        return known

    def _amount(self, question: Question, view: CapacityView, resource: int) -> int:
        """The amount of a resource on the nodes that the workload may use."""
        known = (view, resource, next(iter(question.needs)) if len(question.needs) == 1 else -1)
        if known[2] < 0:
            return int((self._views.amounts(view, resource) * self._useful(question)).sum())
        found = self._free.get(known)
        if found is None:
            mask = self._views.parts(view, known[2]).mask
            found = int((self._views.amounts(view, resource, known[2]) * mask).sum())
            self._free[known] = found
        return found

    def _in_pieces(self, question: Question, cls: int, resource: int) -> int:
        """The idle amount in usable pieces: whole devices for whole ones."""
        key = (question.shape.id, question.step, resource)
        found = self._pieces.get(key)
        if found is None:
            pieces = self._views.pieces(CapacityView.IDLE, resource, cls)
            found = self._pieces[key] = int((pieces * self._useful(question)).sum())
        return found

    def _useful(self, question: Question) -> Bools:
        masks = [self._views.parts(CapacityView.EMPTY, cls).mask for cls in question.needs]
        found: Bools = np.logical_or.reduce(masks)
        return found

    def _failing(self, question: Question) -> int:
        """The first class of its tasks that does not fit, or the first of all."""
        for cls, need in question.needs.items():
            if self._views.total(CapacityView.IDLE, cls) < need:
                return cls
        return next(iter(question.needs))

    def _holders_of(self, question: Question, resource: int) -> tuple[Holder, ...]:
        state = self._cycle.state
        requests = [state.classes.request(cls) for cls in question.needs]
        key = frozenset(state.eligible.key(request) for request in requests)
        return self._holders.of(resource, self._useful(question), key)

    def _name(self, resource: int) -> str:
        return resource_name(self._cycle.state, resource)
