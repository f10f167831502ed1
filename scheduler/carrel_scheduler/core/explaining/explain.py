"""The one reason of every waiting workload, with the facts behind it; and of an eviction.

Checked in this order: it starts; its capacity is being freed; it could never start; its nodes
take no new work; it is over a limit, in all or in a group of nodes; no node is large enough;
capacity went to work served before it; capacity is reserved for others; something is short
(``shortage``). Jobs of one row share the facts, so each row is examined once, and only when asked
for.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from carrel_scheduler.core.capacity.views import GPU, CapacityView, CapacityViews
from carrel_scheduler.core.explaining import group_limits
from carrel_scheduler.core.explaining.holders import Holders, held_places
from carrel_scheduler.core.explaining.impossible import (
    all_nodes,
    on_nodes,
    on_rules,
    resource_name,
    too_large,
    too_wide,
)
from carrel_scheduler.core.explaining.mig_instances import with_instances
from carrel_scheduler.core.explaining.reclaimable import Reclaimable
from carrel_scheduler.core.explaining.shortage import Question, Shortage
from carrel_scheduler.core.queues.usage import RESOURCE_NAMES, LimitViolation
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.work.jobs import JobInfo, WaitingRow

if TYPE_CHECKING:
    from carrel_scheduler.core.cycle.cycle import Cycle


Key = tuple[int, tuple[int, ...]]
"""Number of a shape and the tasks of it that are looked for."""

MANY = 5
"""The most nodes that a reason names."""


SHORT = (Token.WAITS_FOR_ROOM, Token.NO_NODE_FITS)
"""Reasons behind which a search for victims may stand."""


def gang_reason(cycle: "Cycle", job: "JobInfo", step: tuple[int, ...]) -> Reason | None:
    """The reason why a gang waits (grows, lacks members, is gated); ``None`` when it just starts.

    Args:
        cycle: after all actions.
        job: it has tasks that are not placed.
        step: the tasks that it asks a place for next.
    """
    spec, tasks = job.spec, job.shape.tasks
    states = cycle.states_of(job)
    there = sum(state.there for state in states)
    if job.rows and cycle.grows(job):
        return Reason(
            ReasonClass.NOT_NOW, Token.GROWING, project=spec.project, tasks=tasks, there=there
        )
    if step:
        return None
    may = there + sum(len(state.pending) for state in states)
    if not may and spec.gated:
        return Reason(ReasonClass.HELD_BACK, Token.GATED, project=spec.project, tasks=tasks)
    return Reason(
        ReasonClass.HELD_BACK,
        Token.WAITS_FOR_GANG,
        resource="tasks",
        requested=len(job.shape.first_step),
        short=max(0, len(job.shape.first_step) - may),
        bound=may,
        project=spec.project,
        tasks=tasks,
        there=may,
    )


class Explainer:
    """Makes the reasons of one cycle, after all actions."""

    def __init__(self, cycle: "Cycle") -> None:
        self._cycle, state = cycle, cycle.state
        self._views = CapacityViews(
            state.nodes,
            state.classes,
            state.eligible,
            cycle.free_capacity,
            lasting=partial(all_nodes, state),
        )
        self._holders = Holders(cycle)
        self._reclaimable = Reclaimable(cycle)
        self._shortage = Shortage(cycle, self._views, self._holders, self._reclaimable)
        self._of_row: dict[int, Reason] = {}
        self._of_nodes: dict[Key, Reason | None] = {}
        self._of_room: dict[Key, Reason | None] = {}

    def of(self, job: JobInfo) -> Reason:
        """The reason why a job waits or starts."""
        cycle, uid = self._cycle, job.spec.uid
        if uid in cycle.moves.started:
            return self._starting(job)
        if cycle.answered(job):
            return self._held(job)
        if job.waiting is None:
            return self._alone(job)
        return self._delayed(job, self.of_row(job.waiting), job.shape.first_step)

    def of_row(self, row: WaitingRow) -> Reason:
        """The reason of the jobs of a row for which the cycle decided nothing."""
        found = self._of_row.get(row.id)
        if found is None:
            found = self._look(Question.of_row(row))
            if row.id in self._cycle.not_found and found.token in SHORT:
                found = replace(found, token=Token.NO_VICTIMS_FOUND)
            self._of_row[row.id] = found
        return found

    def _alone(self, job: JobInfo) -> Reason:
        """A job with an own history: it runs in part, was held, or is gated."""
        step = self._cycle.next_step(job)
        about = gang_reason(self._cycle, job, step)
        if not step:
            if about is None:
                raise AssertionError(f"{job.spec.uid} waits for nothing")
            return about
        reason = self._delayed(job, self._look(Question.of_job(self._cycle, job, step)), step)
        if about is None:
            return reason
        return replace(
            reason, cls=about.cls, token=about.token, tasks=about.tasks, there=about.there
        )

    def _starting(self, job: JobInfo) -> Reason:
        names = self._cycle.state.nodes.names
        places = self._cycle.moves.started[job.spec.uid].values()
        return Reason(
            ReasonClass.STARTING,
            Token.STARTING,
            project=job.spec.project,
            workload=job.spec.name,
            workload_uid=job.spec.uid,
            nodes=tuple(sorted({names[place.node] for place in places})),
        )

    def _held(self, job: JobInfo) -> Reason:
        """The reason of a job with a reservation: what is terminating, or still runs, there."""
        cycle = self._cycle
        places = held_places(cycle, job)
        asked = self._shortage.missing_at(job, places)
        giving = self._holders.giving_way(job, asked)
        token, holders = Token.WAITS_FOR_ROOM, giving
        if not giving:
            holders = self._holders.in_the_way(places, asked)
            token = Token.RESERVED if holders else token
        names = cycle.state.nodes.names
        return Reason(
            ReasonClass.NOT_NOW,
            token,
            resource=resource_name(cycle.state, asked),
            requested=self._shortage.held_amount(places, asked),
            project=job.spec.project,
            workload=job.spec.name,
            workload_uid=job.spec.uid,
            holders=holders,
            nodes=tuple(sorted({names[place.node] for place in places})),
        )

    def _look(self, question: Question) -> Reason:
        about = self._never_or_closed(question)
        if about is not None and about.cls is ReasonClass.NEVER:
            return self._of_project(question, about)
        violation = self._cycle.queue_usage.over_limit(
            question.queue, question.demand, question.fixed_demand
        )
        if violation is not None and question.fresh:
            never = on_rules(self._cycle.state, question.queue, question.shape, question.kind)
            if never is not None:
                return never
        if about is not None:
            return self._of_project(question, about)
        if violation is not None:
            return self._barred(violation)
        by_group = self._barred_by_group(question)
        if by_group is not None:
            return by_group
        return self._of_project(
            question, self._by_room(question) or self._shortage.too_little(question)
        )

    def _of_project(self, question: Question, reason: Reason) -> Reason:
        reason = with_instances(self._cycle.state, question.needs, reason)
        return (
            reason
            if reason.project
            else replace(reason, project=question.project(self._cycle.state))
        )

    def _never_or_closed(self, question: Question) -> Reason | None:
        """The reason that no node could ever hold it, or only closed ones; equal for a shape."""
        key = (question.shape.id, question.step)
        if key not in self._of_nodes:
            state, found = self._cycle.state, None
            if question.fresh and state.nodes.slots:
                found = on_nodes(state, question.shape, self._views)
            self._of_nodes[key] = found or self._closed(question)
        return self._of_nodes[key]

    def _closed(self, question: Question) -> Reason | None:
        """``NODES_CLOSED`` where all nodes that could hold one of them are cordoned or draining."""
        names = self._cycle.state.nodes.names
        for cls in question.needs:
            ever = self._views.parts(CapacityView.WHOLE, cls).counts() > 0
            if ever.any() and not (ever & self._views.parts(CapacityView.EMPTY, cls).mask).any():
                closed = sorted(names[slot] for slot in ever.nonzero()[0].tolist())
                told = tuple(closed[:MANY])
                return Reason(ReasonClass.NOT_NOW, Token.NODES_CLOSED, nodes=told)
        return None

    def _barred(self, found: LimitViolation) -> Reason:
        fixed = found.token is Token.NON_PREEMPTIBLE_BEYOND_QUOTA
        return Reason(
            ReasonClass.HELD_BACK,
            found.token,
            resource=RESOURCE_NAMES[found.resource],
            requested=found.asked,
            short=found.held + found.asked - found.bound,
            bound=found.bound,
            project=found.queue,
            holders=self._holders.in_queue(found.slot, found.resource, only_fixed=fixed),
        )

    def _barred_by_group(self, question: Question) -> Reason | None:
        """The limit in a group of nodes without which it would fit, now or on empty nodes."""
        state, usage, queue = self._cycle.state, self._cycle.group_usage, question.queue
        fixed = any(question.fixed_demand)
        if usage is None or not usage.binds(queue, fixed=fixed):
            return None
        if question.fresh:
            never = group_limits.never(state, queue, question.shape, self._views)
            if never is not None:
                return never
        for view in (CapacityView.EMPTY, CapacityView.IDLE):
            found = group_limits.barred(
                usage, self._views, view, queue, question.needs, fixed=fixed
            )
            if found is not None:
                limit, nodes = found[0], usage.nodes(found[0].group)
                holders = self._holders.in_queue(
                    limit.slot, GPU, only_fixed=limit.by_quotas, nodes=nodes
                )
                return group_limits.reason_of(state, ReasonClass.HELD_BACK, found, holders)
        return None

    def _by_room(self, question: Question) -> Reason | None:
        """The reason that follows from free capacity alone; ``None`` if evictions are needed."""
        key = (question.shape.id, question.step)
        if key not in self._of_room:
            self._of_room[key] = self._look_at_room(question)
        return self._of_room[key]

    def _look_at_room(self, question: Question) -> Reason | None:
        cycle, views, shortage = self._cycle, self._views, self._shortage
        for cls, need in question.needs.items():
            if views.total(CapacityView.EMPTY, cls) < need:
                return too_large(cycle.state, views, CapacityView.EMPTY, cls, need)
        wide = too_wide(cycle.state, question.shape, views, CapacityView.EMPTY, ReasonClass.NOT_NOW)
        if wide is not None and question.fresh:
            return wide
        if shortage.fits(question, CapacityView.IDLE):
            return self._no_way_to_place(question)
        if cycle.moves.log and shortage.fits(question, CapacityView.BEFORE):
            return shortage.queued_behind(question)
        if shortage.fits(question, CapacityView.UNPROMISED):
            return shortage.held_for_another(question)
        if shortage.fits(question, CapacityView.SOON):
            return shortage.queued_behind(question)
        return None

    def _no_way_to_place(self, question: Question) -> Reason:
        """The reason where each task fits, but not all tasks as their topology levels ask."""
        cycle = self._cycle
        wide = too_wide(
            cycle.state, question.shape, self._views, CapacityView.IDLE, ReasonClass.NOT_NOW
        )
        if wide is not None:
            return wide
        if question.shape.plain:
            return self._shortage.queued_behind(question)
        return self._shortage.scattered(question)

    def _delayed(self, job: JobInfo, reason: Reason, step: tuple[int, ...]) -> Reason:
        """The reason where victims exist, but the queue's preemption delay has not passed."""
        cycle = self._cycle
        if reason.cls is not ReasonClass.NOT_NOW or not cycle.delayed(job, reclaiming=True):
            return reason
        reclaiming = not cycle.delayed(job)
        if not self._shortage.obtainable(Question.of_job(cycle, job, step), reclaiming=reclaiming):
            return reason
        until = cycle.delayed_until(job, reclaiming=reclaiming)
        return replace(
            reason, cls=ReasonClass.HELD_BACK, token=Token.PREEMPTION_DELAYED, until=until
        )
