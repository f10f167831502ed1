"""Fair shares: each parent's share is divided among its children, top down, in integers.

Each queue first gets the smaller of its quota and its demand (``used + waiting``, within its
cap); quotas are never scaled down. The rest is dealt in rounds by weight, higher ranks first; a
queue that wants less than its part leaves the remainder to another round. Parts beyond the quota
are whole units (one GPU, one millicore, one MiB). What rounding leaves goes to the next rank, and
at last one unit each: higher rank, larger remainder, older queue.

With time-based shares the normalised weight ``n`` of a queue becomes ``max(0, n + k * (n - u))``
with past use ``u``. ``k`` and ``u`` are in millionths, so with ``n = w / W`` the score is the
integer ``max(0, w * (10**6 + k) * 10**6 - k * u * W)``; its scale cancels out.

Results are kept: a parent is divided again only when its share, a child's demand or past use
changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.queues.queues import QueueColumns
from carrel_scheduler.core.queues.rules import NO_BOUND, RESOURCES, RuleTable
from carrel_scheduler.core.resources import MILLI, NONE, Triple

UNITS: Final = (MILLI, 1, 1)
MILLION: Final = 1_000_000
Remainder = tuple[int, int]
"""What the last round owes a queue beyond whole units, negated, and the queue's place: sorted, the
largest comes first, and equal ones by age."""


@dataclass(frozen=True, slots=True)
class SiblingQueues:
    """The lasting facts of one resource of the queues of one parent.

    Attributes:
        quota, cap: amounts, ``NO_BOUND`` where open; sequences run from the oldest queue on.
        weight: shares of the surplus, any scale.
        open_quotas: the places of the queues whose quota is all that there is to divide.
        ranks: the places of the queues in the sequences, by rank, highest first.
        unit: what shares beyond the guarantee are multiples of.
    """

    quota: Sequence[int]
    cap: Sequence[int]
    weight: Sequence[int]
    open_quotas: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]
    unit: int


@dataclass(frozen=True, slots=True)
class Past:
    """Past use of siblings, and its weight, both in millionths."""

    usage: Sequence[int] = ()
    factor: int = 0


NO_PAST: Final = Past()


def divide(
    total: int, siblings: SiblingQueues, demand: Sequence[int], past: Past = NO_PAST
) -> list[int]:
    """The fair share of each sibling.

    Args:
        total: what there is to divide.
        siblings: their rules.
        demand: what each holds and waits for.
        past: for time-based shares.
    """
    wanted = list(map(min, demand, siblings.cap))
    fair = list(map(min, wanted, siblings.quota))
    for place in siblings.open_quotas:
        fair[place] = min(wanted[place], total)
    left = total - sum(fair)
    if left <= 0 or fair == wanted:
        return fair
    owed: list[list[Remainder]] = []
    for rank in siblings.ranks:
        hungry = [p for p in rank if wanted[p] > fair[p] and siblings.weight[p]]
        if hungry and left > 0:
            left, remainders = _deal(left, siblings, hungry, wanted, fair, past)
            owed.append(remainders)
    for remainders in owed if left > 0 else ():
        for _, place in sorted(remainders):
            given = min(siblings.unit, left, wanted[place] - fair[place])
            fair[place] += given
            left -= given
    return fair


def _deal(
    left: int,
    siblings: SiblingQueues,
    hungry: list[int],
    wanted: list[int],
    fair: list[int],
    past: Past,
) -> tuple[int, list[Remainder]]:
    """Deal to the queues of one rank; what is left, and what the last round owed to whom."""
    weight, unit = siblings.weight, siblings.unit
    remainders: list[Remainder] = []
    again = True
    while again and left and hungry:
        scores = [weight[place] for place in hungry]
        if past.factor:
            scores = _by_past(scores, hungry, past)
        whole = sum(scores)
        if not whole:
            break
        start, again, unsatisfied, remainders = left, False, [], []
        per_unit = whole * unit
        for place, score in zip(hungry, scores, strict=True):
            offer, missing = start * score, wanted[place] - fair[place]
            given = offer // per_unit * unit
            if given >= missing or missing * whole <= offer:
                given = missing
                again |= missing * whole < offer
            else:
                unsatisfied.append(place)
                if rest := offer - given * whole:
                    remainders.append((-rest, place))
            fair[place] += given
            left -= given
        hungry = unsatisfied
    return left, remainders


def _by_past(weights: list[int], places: list[int], past: Past) -> list[int]:
    factor, usage, whole = past.factor, past.usage, sum(weights)
    if not any(usage):
        return weights
    return [
        max(0, weight * (MILLION + factor) * MILLION - factor * usage[place] * whole)
        for weight, place in zip(weights, places, strict=True)
    ]


Row = list[int]
KnownKeys = dict[int, tuple[tuple[object, ...], tuple[int, ...]]]
"""By slot: the inputs of a place in the order of service, and the place."""


@dataclass(slots=True)
class Family:
    """The children of one parent, and what was last divided among them."""

    slots: tuple[int, ...]
    resources: tuple[SiblingQueues, SiblingQueues, SiblingQueues]
    total: Triple | None = None


class Division:
    """Fair shares by slot, as of the last ``update``.

    Attributes:
        known: what ``order`` keeps as long as the rules and the cluster's amounts stay the same.
        fair: amounts of (GPU thousandths, millicores, MiB).
        allocatable: what a queue may keep when others reclaim theirs: the larger of quota and fair
            share, within its cap; only the cap where the quota is open.
        measure: ``allocatable`` with the cluster's amount where open: what shares are parts of.
    """

    def __init__(self, usage_factor: int = 0) -> None:
        """``usage_factor``: how much past use counts, in millionths; 0: not at all."""
        self._k = usage_factor
        self._table: RuleTable | None = None
        self._total: Triple = NONE
        self._inputs: Counts | None = None
        self._families: dict[int, Family] = {}
        self.known: KnownKeys = {}
        self.fair: list[Triple] = []
        self.allocatable: list[Triple] = []
        self.measure: list[Triple] = []

    def update(self, columns: QueueColumns, total: Triple) -> None:
        """Divide ``total``, the cluster's amounts, among all queues."""
        table = columns.table
        if table is not self._table or total != self._total:
            self._start(table, total)
        inputs = columns.used + columns.waiting
        if self._k:
            inputs = np.hstack([inputs, columns.usage])
        above: set[int] = set()
        if self._inputs is not None:
            changed = (inputs != self._inputs).any(axis=1).nonzero()[0]
            above.update(map(table.parent.__getitem__, changed.tolist()))
        self._inputs = inputs
        for parent, family in self._families.items():
            share = total if parent < 0 else self.fair[parent]
            if parent in above or family.total != share:
                family.total = share
                self._divide(family, inputs)

    def _start(self, table: RuleTable, total: Triple) -> None:
        self._table, self._total, self._inputs = table, total, None
        self._families, below = {-1: _family(table, table.tops, total)}, list(table.tops)
        for slot in below:
            if children := table.children[slot]:
                self._families[slot] = _family(table, children, total)
                below += children
        self.known = {}
        self.fair, self.allocatable, self.measure = ([NONE] * len(table.names) for _ in range(3))

    def _divide(self, family: Family, inputs: Counts) -> None:
        if not family.slots:
            return
        total = family.total or NONE
        rows: list[Row] = inputs.take(family.slots, 0).T.tolist()
        demand, past = rows[: len(UNITS)], rows[len(UNITS) :]
        fair: list[Row] = []
        keeps: list[Row] = []
        measure: list[Row] = []
        for r in RESOURCES:
            siblings = family.resources[r]
            fair.append(divide(total[r], siblings, demand[r], self._past(past, r)))
            keeps.append(list(map(min, siblings.cap, map(max, siblings.quota, fair[r]))))
            measure.append([self._total[r] if most == NO_BOUND else most for most in keeps[r]])
        for by_slot, columns in (
            (self.fair, fair),
            (self.allocatable, keeps),
            (self.measure, measure),
        ):
            for slot, row in zip(family.slots, zip(*columns, strict=True), strict=True):
                by_slot[slot] = row

    def _past(self, usage: list[Row], resource: int) -> Past:
        return Past(usage[resource], self._k) if self._k else NO_PAST


def _family(table: RuleTable, slots: tuple[int, ...], total: Triple) -> Family:
    ranks = sorted({table.rank[slot] for slot in slots}, reverse=True)
    by_rank = tuple(
        tuple(place for place, slot in enumerate(slots) if table.rank[slot] == rank)
        for rank in ranks
    )
    gpu, cpu, memory = (
        SiblingQueues(
            quota=quota,
            cap=[table.cap[slot][r] for slot in slots],
            weight=[_weight(table, slot, r, total) for slot in slots],
            open_quotas=tuple(place for place, most in enumerate(quota) if most == NO_BOUND),
            ranks=by_rank,
            unit=UNITS[r],
        )
        for r in RESOURCES
        for quota in [[table.quota[slot][r] for slot in slots]]
    )
    return Family(slots, (gpu, cpu, memory))


def _weight(table: RuleTable, slot: int, resource: int, total: Triple) -> int:
    """The weight, by default the quota: a weight of 1 counts like one GPU, core or 1,000 MiB."""
    given = table.weight[slot]
    if given is not None:
        return given[resource]
    quota = table.quota[slot][resource]
    return total[resource] if quota == NO_BOUND else quota
