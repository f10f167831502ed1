"""The rules of queues by slot, prepared once after each change, and the checks of new rules.

An open bound is ``NO_BOUND``, larger than any amount, so that comparisons need no special case;
the bounds that work of a leaf can break are one list. A ``RuleTable`` never changes: a new rule
makes a new one, and caches compare its identity. ``Tree`` sums and bounds columns over the tree
of queues.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import QueueSet, UsageSeen
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import NONE, UNLIMITED, ResourceVector, Triple

Bound = tuple[int, int, int, Token]
"""Slot of a queue, resource, the most it may hold, and the rule that says so."""

RESOURCES: Final = (0, 1, 2)
NO_BOUND: Final = 1 << 62


class RuleTable:
    """Rules of all queues by slot; unused slots have no path and no share.

    Attributes:
        names: the queue's name, empty where the slot is unused.
        parent: the slot above, -1 at the top; ``path``: from the queue to the top.
        children: older first, ties by name; ``tops``: the queues without a parent, likewise.
        quota, limit: as set, ``NO_BOUND`` where open.
        cap: never more than this: the limit, and the quota where over quota is off.
        weight: shares of the surplus; ``None`` where the quota takes their place.
        rank, place: served first when higher; and age among all queues (0 is the oldest, ties by
            name).
        quotas, caps: ``quota`` and ``cap`` as columns; ``tree``: who is above whom.
        reservation_delay: (Q,) seconds, NaN where neither the queue nor one above says it.
        bounds: what work of this queue can run into on its way up, nearest queue first.
        fair_users: whether its waiting work is ordered by what its users hold.
        group_limits: group of nodes -> thousandths of GPUs that the queue holds there at most.
        group_quotas: group of nodes -> thousandths of GPUs that are guaranteed to it there.
    """

    def __init__(self, rules: Sequence[QueueSet | None], parent: Sequence[int]) -> None:
        self.rules = tuple(rules)
        self.parent = tuple(parent)
        self.names = [rule.name if rule else "" for rule in rules]
        self.quota = [open_ended(rule.quota) if rule else NONE for rule in rules]
        self.limit = [open_ended(rule.limit) if rule else NONE for rule in rules]
        self.cap = [
            limit if rule is None or rule.over_quota else smaller(limit, quota)
            for rule, limit, quota in zip(rules, self.limit, self.quota, strict=True)
        ]
        self.group_limits = [dict(rule.group_limits) if rule else {} for rule in rules]
        self.group_quotas = [dict(rule.group_quotas) if rule else {} for rule in rules]
        self.fair_users = [rule is not None and rule.fair_users for rule in rules]
        self.weight = [rule.weight if rule else NONE for rule in rules]
        self.rank = [rule.rank if rule else 0 for rule in rules]
        live = sorted((rule.created_at, rule.name, slot) for slot, rule in enumerate(rules) if rule)
        self.place = [-1] * len(self.rules)
        below: list[list[int]] = [[] for _ in rules]
        tops: list[int] = []
        for place, (_, _, slot) in enumerate(live):
            self.place[slot] = place
            (tops if parent[slot] < 0 else below[parent[slot]]).append(slot)
        self.tops = tuple(tops)
        self.children = [tuple(slots) for slots in below]
        self.path = [path_of(slot, parent) if rule else () for slot, rule in enumerate(rules)]
        self.bounds = [self._bounds(path) for path in self.path]
        self.tree = Tree(np.array(self.parent, np.int64).reshape(-1))
        self.quotas: Counts = np.array(self.quota, np.int64).reshape(-1, 3)
        self.caps: Counts = np.array(self.cap, np.int64).reshape(-1, 3)
        self.reservation_delay = np.array(
            [self._reservation_delay(path) for path in self.path], np.float64
        )

    def reservation_delay_s(self, default: float) -> npt.NDArray[np.float64]:
        """(Q,) the reservation delay of each queue; ``default`` where it is not set."""
        return np.where(np.isnan(self.reservation_delay), default, self.reservation_delay)

    def guaranteed_in(self, group: str) -> list[int]:
        """By slot, thousandths of GPUs that are guaranteed to each queue in a group of nodes.

        Where a queue says nothing of the group, as much as its children together.
        """
        found = [quotas.get(group, 0) for quotas in self.group_quotas]
        for level, above in zip(self.tree.below, self.tree.above, strict=True):
            for slot, parent in zip(level.tolist(), above.tolist(), strict=True):
                if group not in self.group_quotas[parent]:
                    found[parent] += found[slot]
        return found

    def _reservation_delay(self, path: tuple[int, ...]) -> float:
        said = (rule.reservation_delay_s for slot in path if (rule := self.rules[slot]) is not None)
        return next((seconds for seconds in said if seconds is not None), math.nan)

    def _bounds(self, path: tuple[int, ...]) -> tuple[Bound, ...]:
        found: list[Bound] = []
        for slot in path:
            rule = self.rules[slot]
            lists = [
                (self.limit[slot], Token.OVER_LIMIT),
                (self.quota[slot], Token.NON_PREEMPTIBLE_BEYOND_QUOTA),
            ]
            if rule is not None and not rule.over_quota:
                lists.append((self.quota[slot], Token.OVER_QUOTA_OFF))
            found += [
                (slot, resource, amounts[resource], token)
                for amounts, token in lists
                for resource in RESOURCES
                if amounts[resource] != NO_BOUND
            ]
        return tuple(found)


def path_of(slot: int, parent: Sequence[int]) -> tuple[int, ...]:
    """The slots from a queue up to the top."""
    found = [slot]
    while (slot := parent[slot]) >= 0:
        found.append(slot)
    return tuple(found)


def open_ended(amounts: ResourceVector) -> Triple:
    """The amounts with ``NO_BOUND`` where they are unlimited."""
    gpu, cpu, memory = (
        NO_BOUND if amount == UNLIMITED else amount for amount in amounts.as_tuple()
    )
    return gpu, cpu, memory


def smaller(one: Triple, other: Triple) -> Triple:
    """The smaller amount of each resource."""
    return min(one[0], other[0]), min(one[1], other[1]), min(one[2], other[2])


def larger(one: Triple, other: Triple) -> Triple:
    """The larger amount of each resource."""
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


class Tree:
    """Made once for a set of rules; all methods change the column that they are given.

    Attributes:
        parent: (Q,) the slot above, -1 at the top and where a slot is unused.
        size: Q.
        below: slots that have a parent, the deepest level first.
        above: their parents, level by level.
    """

    __slots__ = ("above", "below", "parent", "size")

    def __init__(self, parent: Counts) -> None:
        self.parent, self.size = parent, len(parent)
        depth = np.zeros(self.size, np.int64)
        above = parent
        while (inside := above >= 0).any():
            depth += inside
            above = np.where(inside, parent.take(above, mode="clip"), -1)
        self.below = [
            np.flatnonzero(depth == level) for level in range(int(depth.max(initial=0)), 0, -1)
        ]
        self.above = [parent.take(level) for level in self.below]

    def sums(self, values: Counts) -> Counts:
        """(Q,) ``values`` of the leaves with every queue's descendants added."""
        for level, above in zip(self.below, self.above, strict=True):
            np.add.at(values, above, values[level])
        return values

    def largest(self, values: Counts) -> Counts:
        """(Q,) the largest of ``values`` in every queue's subtree."""
        for level, above in zip(self.below, self.above, strict=True):
            np.maximum.at(values, above, values[level])
        return values

    def divisors(self, values: Counts) -> Counts:
        """(Q,) the greatest common divisor in every queue's subtree."""
        for level, above in zip(self.below, self.above, strict=True):
            np.gcd.at(values, above, values[level])
        return values

    def along_paths(self, values: Counts) -> Counts:
        """(Q,) the sum of ``values`` from the top down to every queue."""
        for level, above in zip(reversed(self.below), reversed(self.above), strict=True):
            values[level] += values[above]
        return values

    def least_on_paths(self, values: Counts) -> Counts:
        """(Q, ...) the least of ``values`` from the top down to every queue."""
        for level, above in zip(reversed(self.below), reversed(self.above), strict=True):
            values[level] = np.minimum(values[level], values[above])
        return values


MOST: Final = 1 << 50
"""Larger amounts are mistakes, and sums of them might not fit 64 bits."""


def check_rules(event: QueueSet) -> None:
    """Refuse invalid rules, independent of other queues."""
    if not event.name:
        raise InvalidEvent("bad_name", "name", event.name, "a name that is not empty")
    for field, amounts in (("quota", event.quota), ("limit", event.limit)):
        for value in amounts.as_tuple():
            if not UNLIMITED <= value <= MOST:
                expected = f"an amount from 0 to {MOST}, or -1 for unlimited"
                raise InvalidEvent("bad_amount", field, value, expected)
    for field, by_group in (
        ("group_limits", event.group_limits),
        ("group_quotas", event.group_quotas),
    ):
        for group, value in by_group:
            if not 0 <= value <= MOST:
                expected = f"an amount from 0 to {MOST}"
                raise InvalidEvent("bad_amount", f"{field}.{group}", value, expected)
    if event.weight is not None and (
        len(event.weight) != 3 or not all(0 <= part <= MOST for part in event.weight)
    ):
        expected = "weights of GPUs, CPU and memory that are not negative"
        raise InvalidEvent("bad_amount", "weight", event.weight, expected)
    if not math.isfinite(event.created_at):
        raise InvalidEvent("bad_time", "created_at", event.created_at, "seconds since the epoch")
    for field, runtime in (
        ("preempt_min_runtime_s", event.preempt_min_runtime_s),
        ("reclaim_min_runtime_s", event.reclaim_min_runtime_s),
        ("reservation_delay_s", event.reservation_delay_s),
    ):
        if runtime is not None and not runtime >= 0:
            raise InvalidEvent("bad_time", field, runtime, "seconds that are not negative")


def check_parent(event: QueueSet, *, known: bool, below: bool) -> None:
    """Refuse an invalid parent.

    Args:
        event: names the parent.
        known: there is a queue of that name.
        below: it is the queue itself or one of its descendants.
    """
    if event.parent == event.name or below:
        expected = "a queue that is not the queue itself or below it"
        raise InvalidEvent("queue_cycle", "parent", event.parent, expected)
    if not known:
        raise InvalidEvent("unknown_queue", "parent", event.parent, "the name of a known queue")


def check_usage(event: UsageSeen) -> None:
    """Refuse past use that is not a part of the cluster."""
    if len(event.part) != 3 or not all(0 <= part <= MOST for part in event.part):
        expected = "millionths of GPU, CPU and memory that are not negative"
        raise InvalidEvent("bad_amount", "part", event.part, expected)
