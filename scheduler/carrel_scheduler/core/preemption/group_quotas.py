"""Quotas in groups of nodes: what queues keep there, and what they may take back.

Work is within its queue's quota in a group as long as the queue holds no more there than is
guaranteed to it. ``GroupGuarantees`` is what queues keep against every request of other queues: a
victim may only be taken if in some group in which it holds GPUs its queue is beyond its quota
there, or if it holds some where nobody has a quota. ``GroupClaim`` is what a request may take in
one group by the quota there, whatever its queue and others hold in all: what others hold in the
group beyond their quotas in it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
from typing_extensions import override

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.group_usage import NO_GROUP, GroupUsage
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.preemption.candidates import VictimTable
from carrel_scheduler.core.preemption.legality import (
    ReclaimRequest,
    VictimGuarantees,
    may_lose,
)
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import MILLI, Triple, added
from carrel_scheduler.core.work.jobs import JobInfo

SOME: Triple = (MILLI, 0, 0)
"""A request for GPUs, of any amount."""


class GroupRights:
    """Rights of a request to victims, by what their queues hold in groups of nodes.

    Tasks of an elastic job go in their order, so one that may not be taken would keep all those
    that come after it. Where nothing is found otherwise, divided jobs are judged as a whole.

    Attributes:
        divided: a unit was refused of a job that may be taken as a whole.
    """

    def __init__(self, cycle: Cycle, usage: GroupUsage) -> None:
        self._cycle, self._groups = cycle, usage
        self.divided = self._as_whole = False

    def may_take(self, job: JobInfo, indices: Iterable[int]) -> bool:
        """Whether these tasks of a job of another queue may be taken now."""
        if self._legal(job, self._held(job, indices)):
            return True
        whole = job.running()
        if not whole or not self._legal(job, self._held(job, whole)):
            return False
        self.divided = True
        return self._as_whole

    def search(self, attempt: Callable[[], bool]) -> bool:
        """Whether an attempt finds victims, once more with divided jobs where it does not."""
        if attempt():
            return True
        if not self.divided:
            return False
        self._as_whole = True
        try:
            return attempt()
        finally:
            self._as_whole = False

    def _legal(self, job: JobInfo, held: Mapping[int, int]) -> bool:
        """Whether a job may be taken by what is held by group, ``NO_GROUP`` for the rest."""
        raise NotImplementedError

    def _held(self, job: JobInfo, indices: Iterable[int]) -> Counter[int]:
        return held_in_groups(self._cycle, self._groups, job, indices)


class GroupGuarantees(GroupRights):
    """The guarantees of queues in node groups against the requests of one queue."""

    def __init__(self, cycle: Cycle, leaf: int, usage: GroupUsage) -> None:
        """``leaf``: the slot of the requesting queue."""
        super().__init__(cycle, usage)
        self._leaf = leaf
        self._requests: dict[int, ReclaimRequest] = {}

    @classmethod
    def of(cls, cycle: Cycle, leaf: int) -> "GroupGuarantees | None":
        """``None`` where no queue has a quota in a group."""
        usage = cycle.group_usage
        return None if usage is None or usage.quotas is None else cls(cycle, leaf, usage)

    @override
    def _legal(self, job: JobInfo, held: Mapping[int, int]) -> bool:
        if not any(held.values()) or held.get(NO_GROUP):
            return True
        new = not job.rows
        return any(
            self._request(group).legal(job.queue, (gpu, 0, 0), new=new)
            for group, gpu in held.items()
            if gpu
        )

    def spare(self, table: VictimTable) -> VictimTable:
        """The units that may all be taken together: of a queue in a group those that go first."""
        jobs = self._cycle.state.jobs
        nodes = self._cycle.state.tasks.node.take(table.rows)
        group = np.where(table.gpu > 0, self._groups.groups_of(nodes), NO_GROUP)
        elsewhere = np.bincount(table.unit, table.gpu * (group == NO_GROUP), len(table.first)) > 0
        held: dict[int, Counter[int]] = {}
        for row in np.flatnonzero(group != NO_GROUP).tolist():
            of_unit = held.setdefault(table.unit.item(row), Counter())
            of_unit[group.item(row)] += table.gpu.item(row)
        slots = table.slots()
        leaf = jobs.queue.take(slots)
        kept = elsewhere | (leaf == self._leaf)
        kept[[unit for unit in range(len(kept)) if unit not in held]] = True
        lost = Counter[tuple[int, int]]()
        order = np.lexsort((-jobs.created.take(slots), jobs.priority.take(slots), ~kept))
        for unit in order.tolist():
            some, queue = held.get(unit, Counter()), leaf.item(unit)
            if kept[unit] or self._fits(queue, some, lost):
                kept[unit] = True
                for slot in self._cycle.queue_usage.table.path[queue]:
                    lost.update({(number, slot): gpu for number, gpu in some.items()})
        return table.only(kept)

    def _fits(self, leaf: int, held: Mapping[int, int], lost: Counter[tuple[int, int]]) -> bool:
        """Whether a unit may be evicted in addition to what is counted as lost."""
        return any(
            bool(levels)
            and all(
                may_lose(left, (gone[0] + lost[group, slot], 0, 0), (gpu, 0, 0))
                for slot, left, gone in levels
            )
            for group, gpu in held.items()
            for levels in [self._request(group).excess(leaf)]
        )

    def _request(self, group: int) -> ReclaimRequest:
        found = self._requests.get(group)
        if found is None:
            found = self._requests[group] = request_in(
                self._cycle, self._groups, group, self._leaf, SOME, keeps=VictimGuarantees.QUOTA
            )
        return found


class GroupClaim(GroupRights):
    """A request on what others hold in one group of nodes beyond their quotas there.

    Attributes:
        nodes: (N,) those of the group.
        request: what may be taken; amounts are GPUs in the group.
        cause: what victims are told.
    """

    def __init__(self, cycle: Cycle, job: JobInfo, demand: Triple, group: int) -> None:
        """``demand``: what all tasks of its step ask for, which are to lie in the group."""
        usage = cycle.group_usage
        if usage is None or usage.quotas is None:
            raise AssertionError("no queue has a quota in a group of nodes")
        super().__init__(cycle, usage)
        self._job, self._group = job, group
        name = usage.name(group)
        self.nodes: Bools = usage.nodes(name)
        gpus = (demand[0], 0, 0)
        self.request = request_in(cycle, usage, group, job.queue, gpus)
        quota = usage.quotas.of_group[group].quota
        within = [slot for slot in self.request.within if quota[slot][0]]
        bound = quota[within[0]][0] if within else 0
        self.may = bool(within) and self.request.may
        self.cause = Cause(Token.RECLAIMED, job, within_quota=True, group=name, bound=bound)

    @override
    def _legal(self, job: JobInfo, held: Mapping[int, int]) -> bool:
        amounts = held.get(self._group, 0), 0, 0
        return self.request.legal(job.queue, amounts, new=not job.rows)

    def covers(self, job: JobInfo, indices: Iterable[int]) -> bool:
        """Whether what they hold in the group lies beyond what their queues keep there."""
        amounts = self._held(job, indices).get(self._group, 0), 0, 0
        return self.request.covers(job.queue, amounts)

    def confined(self) -> AbstractContextManager[None]:
        """The job gets places in the group only."""
        return confined(self._cycle, self._job, self.nodes)


@contextmanager
def confined(cycle: Cycle, job: JobInfo, nodes: Bools) -> Iterator[None]:
    """A job gets places on these nodes only, (N,)."""
    before = cycle.confined
    cycle.confined = before | {job.slot: nodes}
    try:
        yield
    finally:
        cycle.confined = before


def staying(cycle: Cycle, job: JobInfo, indices: Iterable[int]) -> AbstractContextManager[None]:
    """Keep these running tasks of a job within their groups where its quotas there cover them."""
    home = home_of(cycle, job, indices)
    return nullcontext() if home is None else confined(cycle, job, home)


def home_of(cycle: Cycle, job: JobInfo, indices: Iterable[int]) -> Bools | None:
    """(N,) the nodes among which tasks may move that quotas in groups cover; ``None``: all."""
    usage, tasks = cycle.group_usage, cycle.state.tasks
    if usage is None or usage.quotas is None:
        return None
    nodes = [tasks.node.item(job.rows[index]) for index in indices if index in job.rows]
    groups = {usage.group_of(node) for node in nodes}
    if not groups or NO_GROUP in groups:
        return None
    if not all(usage.quotas.covered(job.queue, group) for group in groups):
        return None
    found = np.zeros(len(cycle.state.nodes.schedulable), np.bool_)
    for group in groups:
        found |= usage.nodes(usage.name(group))
    return found


def held_in_groups(
    cycle: Cycle, usage: GroupUsage, job: JobInfo, indices: Iterable[int]
) -> Counter[int]:
    """Thousandths of GPUs that tasks hold by group with quotas, ``NO_GROUP`` for the rest."""
    held = Counter[int]()
    for index in indices:
        place = cycle.moves.place_of(job, index)
        held[usage.group_of(place.node)] += place.amounts[0]
    return held


def request_in(
    cycle: Cycle,
    usage: GroupUsage,
    group: int,
    leaf: int,
    demand: Triple,
    *,
    keeps: VictimGuarantees | None = None,
) -> ReclaimRequest:
    """The request of a queue as if the GPUs of one group were all that there is."""
    if usage.quotas is None:
        raise AssertionError("no queue has a quota in a group of nodes")
    held = usage.quotas.of_group[group]
    return ReclaimRequest(held, leaf, demand, given=_given_in(cycle, usage, group), keeps=keeps)


def _given_in(cycle: Cycle, usage: GroupUsage, group: int) -> dict[int, Triple]:
    """The capacity that this cycle gave every queue in a group, see ``Cycle.given``."""
    moves, found = cycle.moves, dict[int, list[Triple]]()
    for places in (moves.started, moves.reserved):
        for uid, by_index in places.items():
            if uid in cycle.state.reserved and places is moves.reserved:
                continue
            gpu = sum(p.amounts[0] for p in by_index.values() if usage.group_of(p.node) == group)
            for slot in cycle.queue_usage.table.path[cycle.state.jobs.get(uid).queue]:
                found.setdefault(slot, []).append((gpu, 0, 0))
    return {slot: added(each) for slot, each in found.items()}


def groups_in_order(cycle: Cycle, job: JobInfo) -> Iterable[int]:
    """Groups with a quota for its queue where it may run: those it prefers first, then by name."""
    usage = cycle.group_usage
    if usage is None or usage.quotas is None:
        return ()
    request = cycle.state.classes.request(job.shape.cls)
    eligible, preferences = (
        cycle.state.eligible.of(request),
        cycle.state.eligible.preferred(request.where),
    )
    found: list[tuple[int, int]] = []
    for group in usage.quotas.bound_by(job.queue):
        nodes = np.flatnonzero(usage.nodes(usage.name(group)) & eligible)
        if len(nodes):
            found.append((0 if preferences is None else -int(preferences.take(nodes).max()), group))
    return [group for _, group in sorted(found)]


def with_headroom(cycle: Cycle, rows: Counts) -> Counts:
    """The waiting rows that a quota in a group of nodes may leave room for."""
    usage, waiting = cycle.group_usage, cycle.state.waiting
    if usage is None or usage.quotas is None:
        return rows[:0]
    most = np.zeros(len(cycle.queue_usage.used), np.int64)
    for group in usage.quotas.of_group:
        np.maximum(most, usage.quotas.headroom(group), out=most)
    demand = waiting.demand[0].take(rows)
    return rows.compress((demand > 0) & (demand <= most.take(waiting.queue.take(rows))))


def excess_in_groups(cycle: Cycle, leaf: int, demand: Triple) -> Counts | None:
    """(Q, 3) what a queue may take of others in the groups where it has a quota, at most."""
    usage, found = cycle.group_usage, list[Counts]()
    if usage is None or usage.quotas is None:
        return None
    for group in usage.quotas.bound_by(leaf):
        request = request_in(cycle, usage, group, leaf, (demand[0], 0, 0))
        if request.within:
            found.append(request.budgets().excess)
    return np.maximum.reduce(found) if found else None
