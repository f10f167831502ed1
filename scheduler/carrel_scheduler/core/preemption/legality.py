"""Legality of victims of a reclaim: which queues may lose how much.

A reclaim request stands when its leaf queue, with the demand and everything reserved, stays within
its fair share in every resource, and its non-preemptible part within quota at every level.

Two queues meet where their paths part: the preemptor's side (*rival*) against the victim's side
(*sibling*). Against a rival that stays within its quota the sibling keeps its quota; against one
beyond it, the larger of quota and fair share, and everything when its rank is higher: what it lost
it would reclaim first. Below the sibling the same threshold says who of its own children is
beyond; when all of them together are not beyond by as much as the sibling is (quotas of projects
may add up to more than their department's), the difference may be taken from any of them. Where
the preemptor's side ends beyond its fair share of a resource, the sibling has to stay further
beyond its own (times ``saturation_milli``). Whatever a queue keeps covers its work from the highest
priority down: none of that is taken, even where nothing else is of use (``priority_guarantees``).

``Budgets`` holds these amounts for every queue as of the request. They are the only definition of
what is legal, with one rule for what they allow: ``may_lose`` for one more victim (the sequential
search and the exact search), ``legal_losses`` for a whole set (the search over arrays).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.layers import LARGEST, Bools, Counts
from carrel_scheduler.core.preemption.priority_guarantees import PriorityGuarantees, QueueGuarantees
from carrel_scheduler.core.queues.rules import NO_BOUND, RESOURCES, RuleTable, Tree, smaller
from carrel_scheduler.core.queues.usage import (
    LimitViolation,
    QueueUsage,
    find_violation,
    permanent_violation,
)
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import MILLI, NONE, Triple
from carrel_scheduler.core.work.jobs import JobInfo

OPEN: Final[Triple] = (NO_BOUND, NO_BOUND, NO_BOUND)


class VictimGuarantees(StrEnum):
    """The part of a queue's resources that a reclaim may not take."""

    QUOTA = "quota"
    FAIR_SHARE = "fair-share"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class CapacityNeed:
    """The capacity that victims inside a queue must free for the preemptor to keep its limit."""

    slot: int
    resource: int
    amount: int


@dataclass(frozen=True, slots=True)
class Budgets:
    """Budgets of queues: what each may lose, the losses of its descendants included.

    Attributes:
        tree: the queues.
        excess: (Q, 3) int64, GPU thousandths, millicores and MiB beyond what a queue keeps; zero
            where nothing may be taken on account of the resource, ``NO_BOUND`` for any amount.
        most: (Q, 3) int64, what all victims of a queue may hold together at most; ``NO_BOUND``
            where open, negative where the queue may lose nothing.
    """

    tree: Tree
    excess: Counts
    most: Counts

    @classmethod
    def of(cls, tree: Tree, excess: Counts) -> "Budgets":
        """Budgets without a bound on sums."""
        return cls(tree, excess, np.full((tree.size, 3), NO_BOUND, np.int64))

    @property
    def open(self) -> Bools:
        """(Q,) whether a queue may lose any amount."""
        return np.asarray(self.excess[:, 0] >= NO_BOUND)

    def by_excess(self, largest: Sequence[int]) -> "Budgets":
        """The same with ``most`` expressed in ``excess``, stricter where it cannot be exact.

        Args:
            largest: what a victim holds at most of each resource.
        """
        bound = self.most < NO_BOUND
        queues = np.flatnonzero(bound.any(axis=1))
        excess = self.excess.copy()
        if len(queues):
            left = self.most[queues] + 1 - np.asarray(largest, np.int64)
            strict = np.where(bound[queues], np.minimum(excess[queues], left), 0)
            excess[queues] = np.maximum(strict, 0)
        return Budgets.of(self.tree, excess)


def may_lose(excess: Sequence[int], lost: Sequence[int], amounts: Sequence[int] = OPEN) -> bool:
    """Whether a queue that has lost ``lost`` may lose one victim more, which holds ``amounts``.

    While it has lost less than its excess in some resource that the victim holds; so the last
    victim may take the queue below what it keeps. Without ``amounts`` it holds some of everything.
    """
    return (
        (lost[0] < excess[0] and amounts[0] > 0)
        or (lost[1] < excess[1] and amounts[1] > 0)
        or (lost[2] < excess[2] and amounts[2] > 0)
    )


def legal_losses(excess: Counts, sums: Counts, largest: Counts) -> Bools:
    """(Q,) whether queues may lose whole sets of victims: ``may_lose`` with the largest last.

    Args:
        excess: (Q, 3) as in ``Budgets``.
        sums: (Q, 3) what the victims of each queue hold together.
        largest: (Q, 3) the most that one of them holds.
    """
    return np.asarray((sums - largest < excess).any(axis=1) | ~sums.any(axis=1))


class ReclaimRequest:
    """The amounts that one preemptor may take from other queues.

    Attributes:
        refusal: what keeps it from taking anything, ``None`` when it may; with the token
            ``QUOTA_USED`` the bound is the leaf's fair share.
    """

    __slots__ = (
        "_always", "_amounts", "_before", "_demand", "_given", "_kept_from", "_leaf", "_left",
        "_multiplier", "_priorities", "_rivals", "_usage", "_within_quota", "refusal",
    )  # fmt: skip

    def __init__(
        self,
        queue_usage: QueueUsage,
        leaf: int,
        demand: Sequence[int],
        fixed_demand: Sequence[int] = NONE,
        *,
        saturation_milli: int = MILLI,
        given: Mapping[int, Triple] | None = None,
        keeps: VictimGuarantees | None = None,
        priorities: PriorityGuarantees | None = None,
    ) -> None:
        """A request of a leaf for ``demand``, of which ``fixed_demand`` is non-preemptible.

        Args:
            queue_usage: with everything counted but the preemptor; what is counted out of it later
                counts as lost.
            leaf: the slot of its queue.
            demand: what it asks for.
            fixed_demand: the non-preemptible part.
            saturation_milli: how much further beyond its fair share, in thousandths, a queue has to
                stay than a preemptor that ends beyond its own.
            given: by slot, what queues were given in this very cycle: it makes no victims of what
                ran before.
            keeps: what every victim's side keeps, whatever the preemptor's side holds; ``None``: it
                follows from that.
            priorities: what queues keep by priority; ``None``: nothing.
        """
        self._usage, self._leaf, self._demand = queue_usage, leaf, demand
        self._always, self._priorities = keeps, priorities
        self._kept_from: dict[int, int] = {}
        self._amounts: dict[VictimGuarantees, QueueGuarantees] = {}
        self._multiplier = saturation_milli
        self._given = given or {}
        self._before = tuple(map(tuple, queue_usage.used))
        self._left: dict[tuple[int, bool], dict[int, Triple]] = {}
        table = queue_usage.table
        self._rivals = {table.parent[slot]: slot for slot in reversed(table.path[leaf])}
        self._within_quota = {
            slot: queue_usage.within(queue_usage.quota[slot], slot, demand)
            for slot in table.path[leaf]
        }
        self.refusal = self._refused_by_rule(fixed_demand) or self._beyond_fair_share()

    @property
    def may(self) -> bool:
        """Whether the request may take anything at all."""
        return self.refusal is None

    @property
    def within(self) -> tuple[int, ...]:
        """The queues on its path that stay within their quotas with the demand, nearest first."""
        return tuple(slot for slot, fits in self._within_quota.items() if fits)

    def excess(self, victim_leaf: int, *, new: bool = False) -> list[tuple[int, Triple, Triple]]:
        """(slot, its excess, what it has lost) from the sibling down to the leaf.

        Empty where nothing may be taken. Resources that the preemptor does not ask for are zero.
        With ``new`` what this cycle gave the queues counts as theirs.
        """
        side = self._side(victim_leaf)
        if not side:
            return []
        left = self._excess_of(side[0], new=new)
        return [(slot, left.get(slot, NONE), self._lost(slot)) for slot in side if left]

    def legal(self, victim_leaf: int, amounts: Sequence[int], *, new: bool = False) -> bool:
        """Whether a victim of this leaf that holds ``amounts`` may be evicted now.

        ``new``: it would only start in this cycle. What the cycle gave a queue may be taken back.
        """
        levels = self.excess(victim_leaf, new=new)
        if not levels or not all(may_lose(left, lost, amounts) for _, left, lost in levels):
            return False
        sibling, _, lost = levels[0]
        most = self._most(sibling)
        return all(lost[r] + amounts[r] <= most[r] for r in RESOURCES)

    def may_take(self, job: JobInfo, amounts: Sequence[int]) -> bool:
        """Whether so much may be taken of a job now."""
        if job.rows and job.spec.priority >= self.kept_from(job.queue):
            return False
        return self.legal(job.queue, amounts, new=not job.rows)

    def kept_from(self, victim_leaf: int) -> int:
        """The lowest priority of which nothing that runs may be taken; ``LARGEST``: there is none.

        It is that of the time of the request: what was taken since does not change it.
        """
        found = self._kept_from.get(victim_leaf)
        if found is None:
            found = self._kept_from[victim_leaf] = self._find_kept(victim_leaf)
        return found

    def kept_priorities(self, giving: Bools) -> Counts | None:
        """(Q,) ``kept_from`` of the queues that may lose something; ``None`` where all is open.

        Args:
            giving: (Q,) these queues.
        """
        if self._priorities is None:
            return None
        table = self._usage.table
        leaves = [slot for slot in np.flatnonzero(giving).tolist() if not table.children[slot]]
        kept = {slot: least for slot in leaves if (least := self.kept_from(slot)) < LARGEST}
        if not kept:
            return None
        found = np.full(len(giving), LARGEST, np.int64)
        found[list(kept)] = list(kept.values())
        return found

    def covers(self, victim_leaf: int, amounts: Sequence[int]) -> bool:
        """Whether all that a victim holds lies beyond what every queue above it keeps."""
        levels = self.excess(victim_leaf)
        return bool(levels) and all(
            any(0 < amounts[r] <= left[r] - lost[r] for r in RESOURCES) for _, left, lost in levels
        )

    def take(self, victim_leaf: int, amounts: Sequence[int]) -> None:
        """Count a victim, which is preemptible, out of the queue usage."""
        self._usage.add(victim_leaf, amounts, sign=-1)

    def needs(self) -> tuple[CapacityNeed, ...]:
        """The amounts to take inside the queues above the preemptor to keep their bounds."""
        demand, used = self._demand, self._usage.used
        return tuple(
            CapacityNeed(slot, resource, short)
            for slot, resource, bound, token in self._usage.table.bounds[self._leaf]
            if token is not Token.NON_PREEMPTIBLE_BEYOND_QUOTA
            and demand[resource]
            and (short := used[slot][resource] + demand[resource] - bound) > 0
        )

    def budgets(self) -> Budgets:
        """The amounts that may be taken of every queue, nothing of its own, for whole arrays."""
        table = self._usage.table
        size = len(self._before)
        excess: list[Triple] = [NONE] * size
        most: list[Triple] = [OPEN] * size
        for parent, rival in self._rivals.items():
            if rival != self._leaf:
                excess[rival] = OPEN
            for sibling in self._children(parent):
                if sibling != rival and (left := self._excess_of(sibling)):
                    most[sibling] = self._most(sibling)
                    for slot, amounts in left.items():
                        excess[slot] = amounts
        return Budgets(table.tree, np.array(excess, np.int64), np.array(most, np.int64))

    def _refused_by_rule(self, fixed_demand: Sequence[int]) -> LimitViolation | None:
        """A bound that no eviction can help to meet, or ``None``.

        Limits of the queues above are not: victims may lie inside the same department. What is
        non-preemptible stays, so its quotas bind at every level.
        """
        queue_usage, leaf, demand = self._usage, self._leaf, self._demand
        for_ever = permanent_violation(queue_usage.table, leaf, demand, fixed_demand)
        if for_ever is not None:
            return for_ever
        fixed = find_violation(queue_usage.table, leaf, (NONE, fixed_demand), queue_usage.held)
        if fixed is not None:
            return fixed
        own = queue_usage.over_limit(leaf, demand)
        return own if own is not None and own.slot == leaf else None

    def _beyond_fair_share(self) -> LimitViolation | None:
        """The first resource, asked for or not, in which the leaf would pass its fair share."""
        slot = self._leaf
        used, fair, demand = self._usage.used[slot], self._usage.fair[slot], self._demand
        for r in RESOURCES:
            if used[r] + demand[r] > fair[r]:
                name = self._usage.table.names[slot]
                return LimitViolation(Token.QUOTA_USED, name, slot, r, used[r], demand[r], fair[r])
        return None

    def _children(self, slot: int) -> tuple[int, ...]:
        table = self._usage.table
        return table.tops if slot < 0 else table.children[slot]

    def _side(self, victim_leaf: int) -> list[int]:
        """The victim's path below the lowest common ancestor, from the sibling to the leaf."""
        table = self._usage.table
        found = []
        for slot in table.path[victim_leaf]:
            if self._rivals.get(table.parent[slot]) == slot:
                break
            found.append(slot)
        found.reverse()
        return found

    def _lost(self, slot: int) -> Triple:
        """The amounts that a queue has lost since the request was made."""
        before, now = self._before[slot], self._usage.used[slot]
        return before[0] - now[0], before[1] - now[1], before[2] - now[2]

    def _keeps(self, sibling: int) -> VictimGuarantees:
        if self._always is not None:
            return self._always
        rank, rival = self._usage.table.rank, self._rivals[self._parent(sibling)]
        if self._within_quota[rival]:
            return VictimGuarantees.QUOTA
        return VictimGuarantees.ALL if rank[sibling] > rank[rival] else VictimGuarantees.FAIR_SHARE

    def _find_kept(self, victim_leaf: int) -> int:
        side, priorities = self._side(victim_leaf), self._priorities
        if priorities is None or not side:
            return LARGEST
        keeps = self._keeps(side[0])
        amounts = self._amounts.get(keeps)
        if amounts is None:
            kept = partial(self._kept, keeps=keeps)
            amounts = QueueGuarantees(self._usage.table, self._used_before, kept)
            self._amounts[keeps] = amounts
        return priorities.lowest(side, amounts)

    def _parent(self, slot: int) -> int:
        return self._usage.table.parent[slot]

    def _excess_of(self, sibling: int, *, new: bool = False) -> dict[int, Triple]:
        """The amounts that may be taken of a sibling and of every queue below it; empty: none."""
        found = self._left.get((sibling, new))
        if found is None:
            found = self._left[sibling, new] = {}
            keeps = self._keeps(sibling)
            if keeps is not VictimGuarantees.ALL:
                left = self._beyond(sibling, keeps=keeps, new=new)
                self._spread(sibling, left, partial(self._beyond, keeps=keeps, new=new), found)
        return found

    def _spread(
        self, slot: int, left: Triple, beyond: Callable[[int], Triple], found: dict[int, Triple]
    ) -> None:
        """Enter the amounts that may be taken of a queue, and of every queue below it."""
        found[slot] = left
        below = self._usage.table.children
        if below[slot] and any(left):
            own = [beyond(child) for child in below[slot]]
            unclaimed = _unclaimed(left, own)
            for child, amounts in zip(below[slot], own, strict=True):
                part = _part(left, unclaimed, amounts)
                if below[child]:
                    self._spread(child, part, beyond, found)
                else:
                    found[child] = part

    def _beyond(self, slot: int, *, keeps: VictimGuarantees, new: bool) -> Triple:
        """The amounts by which a queue is beyond its threshold, of what the preemptor asks for."""
        kept, demand = self._kept(slot, keeps=keeps), self._demand
        used = self._before[slot] if new else self._used_before(slot)
        return (
            used[0] - kept[0] if demand[0] and used[0] > kept[0] else 0,
            used[1] - kept[1] if demand[1] and used[1] > kept[1] else 0,
            used[2] - kept[2] if demand[2] and used[2] > kept[2] else 0,
        )

    def _kept(self, slot: int, *, keeps: VictimGuarantees) -> Triple:
        """The threshold of a queue on a victim's side."""
        usage = self._usage
        if keeps is not VictimGuarantees.QUOTA:
            return usage.allocatable[slot]
        return smaller(usage.allocatable[slot], usage.quota[slot])

    def _used_before(self, slot: int) -> Triple:
        """A queue's usage without what this cycle gave it."""
        used, given = self._before[slot], self._given.get(slot)
        if given is None:
            return used[0], used[1], used[2]
        return used[0] - given[0], used[1] - given[1], used[2] - given[2]

    def _most(self, sibling: int) -> Triple:
        """The amounts to take until the sibling is no fuller than a preemptor beyond its share."""
        rival, fair_of = self._rivals[self._parent(sibling)], self._usage.fair
        has, held, fairly = self._before[sibling], self._before[rival], fair_of[rival]
        most = [NO_BOUND] * 3
        for r in RESOURCES:
            claimed, fair = held[r] + self._demand[r], fairly[r]
            if self._demand[r] and claimed > fair and (share := fair_of[sibling][r]) > 0:
                floor = claimed * self._multiplier * share // (fair * MILLI) if fair else has[r]
                most[r] = max(has[r] - floor - 1, -1)
        return most[0], most[1], most[2]


def _unclaimed(left: Triple, beyond: Iterable[Triple]) -> Triple:
    """The excess of a queue beyond the sum of its children's."""
    gpu, cpu, memory = left
    for own in beyond:
        gpu, cpu, memory = gpu - own[0], cpu - own[1], memory - own[2]
    return max(gpu, 0), max(cpu, 0), max(memory, 0)


def _part(above: Triple, unclaimed: Triple, own: Triple) -> Triple:
    """The part of ``above`` that may be taken of a child which is ``own`` over its quota."""
    return (
        own[0] + unclaimed[0] if above[0] else 0,
        own[1] + unclaimed[1] if above[1] else 0,
        own[2] + unclaimed[2] if above[2] else 0,
    )


def is_protected(cycle: Cycle, preemptor: JobInfo, victim: JobInfo) -> bool:
    """Whether a workload has not run long enough to be evicted for one of another queue."""
    least = reclaim_protects_s(
        cycle.queue_usage.table, preemptor.queue, victim.queue, cycle.settings.min_runtime_s
    )
    return victim.started + least > cycle.now


def preempt_protects_s(table: RuleTable, leaf: int, default: float = 0.0) -> float:
    """The minimum run time against work of its own queue, in seconds; the nearest queue decides.

    Args:
        table: the rules.
        leaf: the slot of the queue.
        default: where none says so.
    """
    for slot in table.path[leaf]:
        rule = table.rules[slot]
        if rule is not None and rule.preempt_min_runtime_s is not None:
            return rule.preempt_min_runtime_s
    return default


def reclaim_protects_s(
    table: RuleTable, preemptor_leaf: int, victim_leaf: int, default: float = 0.0
) -> float:
    """The minimum run time against work of another queue, in seconds.

    The queue right below the lowest common ancestor on the victim's side decides, then those above
    it: a department's rule protects against other departments, a project's own rule against the
    projects beside it.
    """
    common = set(table.path[preemptor_leaf])
    path = table.path[victim_leaf]
    parting = max(sum(slot not in common for slot in path) - 1, 0)
    for slot in path[parting:]:
        rule = table.rules[slot]
        if rule is not None and rule.reclaim_min_runtime_s is not None:
            return rule.reclaim_min_runtime_s
    return default
