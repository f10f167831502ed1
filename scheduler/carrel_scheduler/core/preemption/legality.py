"""Claims: who may take back room from other queues, and whose work is legal to take.

A claim stands when its leaf, with the demand and everything promised, stays within its fair share
in every resource, and its non-preemptible part within quota at every level.

Two queues meet where their paths part: the preemptor's side (*rival*) against the victim's side
(*sibling*). Against a rival that stays within its quota the sibling keeps its quota; against one
beyond it, the larger of quota and fair share, and everything when its rank is higher: what it lost
it would win back first. Below the sibling the same threshold says who of its own children is
beyond; when all of them together are not beyond by as much as the sibling is (quotas of projects
may add up to more than their department's), the difference is open to all of them.

A victim is legal while, at every level from the sibling down, its queue is still beyond its
threshold in some resource that the preemptor asks for and the victim holds; so the last victim may
take a queue below. At last the preemptor must not end up fuller than those it takes from: where its
side is beyond its fair share of a resource, the sibling has to stay more so (times
``multiplier``) after the taking.

Everything is read from the queue usage as it is, so legality follows what is counted out of them,
by ``take`` or by anybody else; the preemptor itself is counted in only after its claim.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.preemption.victim_order import EvictionUnit
from carrel_scheduler.core.queues.queues import Counts
from carrel_scheduler.core.queues.rules import NO_BOUND, RESOURCES, RuleTable, smaller
from carrel_scheduler.core.queues.usage import (
    LimitViolation,
    QueueUsage,
    find_violation,
    permanent_violation,
)
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import MILLI, NONE, Triple
from carrel_scheduler.core.work.jobs import Job

OPEN: Final[Triple] = (NO_BOUND, NO_BOUND, NO_BOUND)


class VictimGuarantees(StrEnum):
    """What the victim's side keeps against a claim."""

    QUOTA = "quota"
    FAIR_SHARE = "fair-share"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class CapacityNeed:
    """Room that victims inside a queue must make, else the preemptor would break its bound."""

    slot: int
    resource: int
    amount: int


@dataclass(frozen=True, slots=True)
class ReclaimBudgets:
    """How much may be taken of each queue, all that its descendants lose included.

    A set of victims is legal when every queue that loses something, at every level, has a resource
    of which all its victims but the last hold less than ``excess``, and of which the last holds
    something; and when all of them hold at most ``most`` of every resource.

    Attributes:
        excess: (Q, 3) int64; zero where nothing may be taken on account of the resource,
            ``NO_BOUND`` for the queues above the preemptor.
        most: (Q, 3) int64; ``NO_BOUND`` where open, negative where the queue must not be touched.
    """

    excess: Counts
    most: Counts


class ReclaimRequest:
    """One claim against the present queue_usage.

    Attributes:
        refusal: what keeps it from standing, ``None`` when it stands; with the token
            ``QUOTA_USED`` the bound is the leaf's fair share.
    """

    __slots__ = ("_demand", "_given", "_leaf", "_multiplier", "_rivals", "_standings", "refusal")

    def __init__(
        self,
        queue_usage: QueueUsage,
        leaf: int,
        demand: Sequence[int],
        fixed_demand: Sequence[int] = NONE,
        *,
        saturation_milli: int = MILLI,
        given: Mapping[int, Triple] | None = None,
    ) -> None:
        """A claim of a leaf for ``demand``, of which ``fixed_demand`` is non-preemptible.

        Args:
            queue_usage: with everything counted but the preemptor.
            leaf: the slot of its queue.
            demand: what it asks for.
            fixed_demand: the non-preemptible part.
            given: by slot, what queues were given in this very cycle: it makes nobody else of
                them a victim. ``None`` to judge what was given itself.
            saturation_milli: how much fuller, in thousandths, a queue has to stay than a preemptor
                beyond its fair share.
        """
        self._standings, self._leaf, self._demand = queue_usage, leaf, demand
        self._multiplier = saturation_milli
        self._given = given or {}
        table = queue_usage.table
        self._rivals = {table.parent[slot]: slot for slot in reversed(table.path[leaf])}
        self.refusal = self._refused_by_rule(fixed_demand) or self._beyond_fair_share()

    def of_given(self) -> "ReclaimRequest":
        """The same claim against what queues were given in this cycle."""
        twin = object.__new__(ReclaimRequest)
        for name in ReclaimRequest.__slots__:
            setattr(twin, name, getattr(self, name))
        twin._given = {}
        return twin

    @property
    def may(self) -> bool:
        """Whether it may take anything at all."""
        return self.refusal is None

    def keeps(self, victim_leaf: int) -> VictimGuarantees:
        """What the victim's side keeps; ``ALL`` for the preemptor's own leaf."""
        side = self._side(victim_leaf)
        return self._keeps(side[0]) if side else VictimGuarantees.ALL

    def excess(self, victim_leaf: int) -> list[tuple[int, Triple]]:
        """(slot, what may still be taken) from the sibling down to the leaf; empty when closed.

        Resources that the preemptor does not ask for are zero.
        """
        side = self._side(victim_leaf)
        keeps = self._keeps(side[0]) if side else VictimGuarantees.ALL
        if keeps is VictimGuarantees.ALL:
            return []
        left = self._beyond(side[0], keeps)
        found = [(side[0], left)]
        for above, slot in pairwise(side):
            children = self._children(above)
            beyond = [self._beyond(child, keeps) for child in children]
            left = _part(left, _unclaimed(left, beyond), beyond[children.index(slot)])
            found.append((slot, left))
        return found

    def legal(self, victim_leaf: int, amounts: Sequence[int]) -> bool:
        """Whether a victim of this leaf that holds ``amounts`` may be taken now."""
        levels = self.excess(victim_leaf)
        if not levels:
            return False
        for _, left in levels:
            if not any(left[r] and amounts[r] for r in RESOURCES):
                return False
        most = self._most(levels[0][0])
        return all(amounts[r] <= most[r] for r in RESOURCES)

    def covers(self, victim_leaf: int, amounts: Sequence[int]) -> bool:
        """Whether a victim lies covers beyond what every queue above it keeps."""
        levels = self.excess(victim_leaf)
        return bool(levels) and all(
            any(0 < amounts[r] <= left[r] for r in RESOURCES) for _, left in levels
        )

    def take(self, victim_leaf: int, amounts: Sequence[int]) -> None:
        """Count a victim, which is preemptible, out of the queue usage."""
        self._standings.add(victim_leaf, amounts, sign=-1)

    def needs(self) -> tuple[CapacityNeed, ...]:
        """What has to be taken inside the queues above the preemptor to keep their bounds."""
        demand, used = self._demand, self._standings.used
        return tuple(
            CapacityNeed(slot, resource, short)
            for slot, resource, bound, token in self._standings.table.bounds[self._leaf]
            if token is not Token.NON_PREEMPTIBLE_BEYOND_QUOTA
            and demand[resource]
            and (short := used[slot][resource] + demand[resource] - bound) > 0
        )

    def budgets(self) -> ReclaimBudgets:
        """What may be taken of every queue, for a search over whole arrays."""
        size = len(self._standings.used)
        excess: list[Triple] = [NONE] * size
        most: list[Triple] = [OPEN] * size
        for parent, rival in self._rivals.items():
            if rival != self._leaf:
                excess[rival] = OPEN
            for sibling in self._children(parent):
                keeps = self._keeps(sibling)
                if sibling != rival and keeps is not VictimGuarantees.ALL:
                    most[sibling] = self._most(sibling)
                    self._spread(sibling, self._beyond(sibling, keeps), keeps, excess)
        return ReclaimBudgets(np.array(excess, np.int64), np.array(most, np.int64))

    def _refused_by_rule(self, fixed_demand: Sequence[int]) -> LimitViolation | None:
        """A bound that no victim can help to meet.

        Limits of the queues above are not: victims may lie inside the same department. What is
        non-preemptible stays, so its quotas bind at every level.
        """
        queue_usage, leaf, demand = self._standings, self._leaf, self._demand
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
        used, fair, demand = self._standings.used[slot], self._standings.fair[slot], self._demand
        for r in RESOURCES:
            if used[r] + demand[r] > fair[r]:
                name = self._standings.table.names[slot]
                return LimitViolation(Token.QUOTA_USED, name, slot, r, used[r], demand[r], fair[r])
        return None

    def _children(self, slot: int) -> tuple[int, ...]:
        table = self._standings.table
        return table.tops if slot < 0 else table.children[slot]

    def _side(self, victim_leaf: int) -> list[int]:
        """The victim's path below the lowest common ancestor, from the sibling to the leaf."""
        table = self._standings.table
        found = []
        for slot in table.path[victim_leaf]:
            if self._rivals.get(table.parent[slot]) == slot:
                break
            found.append(slot)
        found.reverse()
        return found

    def _keeps(self, sibling: int) -> VictimGuarantees:
        queue_usage = self._standings
        rank, rival = queue_usage.table.rank, self._rivals[queue_usage.table.parent[sibling]]
        if queue_usage.within(queue_usage.quota[rival], rival, self._demand):
            return VictimGuarantees.QUOTA
        return VictimGuarantees.ALL if rank[sibling] > rank[rival] else VictimGuarantees.FAIR_SHARE

    def _beyond(self, slot: int, keeps: VictimGuarantees) -> Triple:
        """How far a queue is beyond its threshold in what the preemptor asks for."""
        kept: Triple = self._standings.allocatable[slot]
        used: Sequence[int] = self._standings.used[slot]
        if keeps is VictimGuarantees.QUOTA:
            kept = smaller(kept, self._standings.quota[slot])
        if slot in self._given:
            given = self._given[slot]
            used = (used[0] - given[0], used[1] - given[1], used[2] - given[2])
        demand = self._demand
        return (
            used[0] - kept[0] if demand[0] and used[0] > kept[0] else 0,
            used[1] - kept[1] if demand[1] and used[1] > kept[1] else 0,
            used[2] - kept[2] if demand[2] and used[2] > kept[2] else 0,
        )

    def _spread(
        self, slot: int, left: Triple, keeps: VictimGuarantees, excess: list[Triple]
    ) -> None:
        """Enter what may be taken of a queue, and of everything below it."""
        excess[slot] = left
        children = self._standings.table.children[slot]
        if children and any(left):
            beyond = [self._beyond(child, keeps) for child in children]
            unclaimed = _unclaimed(left, beyond)
            for child, own in zip(children, beyond, strict=True):
                self._spread(child, _part(left, unclaimed, own), keeps, excess)

    def _most(self, sibling: int) -> Triple:
        """What may be taken until the sibling is no fuller than a preemptor beyond its share."""
        queue_usage = self._standings
        rival = self._rivals[queue_usage.table.parent[sibling]]
        has, claims, fairly = (
            queue_usage.used[sibling],
            queue_usage.used[rival],
            queue_usage.fair[rival],
        )
        most = [NO_BOUND] * 3
        for r in RESOURCES:
            claimed, fair = claims[r] + self._demand[r], fairly[r]
            if self._demand[r] and claimed > fair and (share := queue_usage.fair[sibling][r]) > 0:
                floor = claimed * self._multiplier * share // (fair * MILLI) if fair else has[r]
                most[r] = max(has[r] - floor - 1, -1)
        return most[0], most[1], most[2]


def _unclaimed(left: Triple, beyond: Iterable[Triple]) -> Triple:
    """By how much a queue is further beyond than all its children together."""
    gpu, cpu, memory = left
    for own in beyond:
        gpu, cpu, memory = gpu - own[0], cpu - own[1], memory - own[2]
    return max(gpu, 0), max(cpu, 0), max(memory, 0)


def _part(above: Triple, unclaimed: Triple, own: Triple) -> Triple:
    """What may be taken of a child that is ``own`` beyond, of a queue of which ``above`` may."""
    return (
        own[0] + unclaimed[0] if above[0] else 0,
        own[1] + unclaimed[1] if above[1] else 0,
        own[2] + unclaimed[2] if above[2] else 0,
    )


def legal(claim: ReclaimRequest, unit: EvictionUnit) -> bool:
    """Whether a unit may be taken now.

    What this cycle gave a queue may be taken back; it makes no victim of what ran before.
    """
    judged = claim if unit.job.rows else claim.of_given()
    return judged.legal(unit.job.queue, unit.amounts)


def covers(claim: ReclaimRequest, unit: EvictionUnit) -> bool:
    """Whether all of a unit lies beyond what its queue keeps."""
    return claim.covers(unit.job.queue, unit.amounts)


def is_protected(cycle: Cycle, preemptor: Job, victim: Job) -> bool:
    """Whether a workload has not run long enough to give way to one of another queue."""
    least = reclaim_protects_s(
        cycle.queue_usage.table, preemptor.queue, victim.queue, cycle.settings.min_runtime_s
    )
    return victim.started + least > cycle.now


def preempt_protects_s(table: RuleTable, leaf: int, default: float = 0.0) -> float:
    """Against work of its own queue: the nearest queue from the leaf up that says so, in seconds.

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
    table: RuleTable, claimer_leaf: int, victim_leaf: int, default: float = 0.0
) -> float:
    """Against work of another queue, in seconds.

    The queue right below the lowest common ancestor on the victim's side decides, then those above
    it: a department's rule protects against other departments, a project's own rule against the
    projects beside it.
    """
    common = set(table.path[claimer_leaf])
    path = table.path[victim_leaf]
    parting = max(sum(slot not in common for slot in path) - 1, 0)
    for slot in path[parting:]:
        rule = table.rules[slot]
        if rule is not None and rule.reclaim_min_runtime_s is not None:
            return rule.reclaim_min_runtime_s
    return default
