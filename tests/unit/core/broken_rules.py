"""The core with one rule broken at a time: what the invariants must notice.

Each entry puts a wrong function in the place of a right one, as a careless change would, and names
the invariants of which one has to say so.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from carrel_scheduler.core.actions import evictions
from carrel_scheduler.core.capacity.eligibility import Eligible
from carrel_scheduler.core.changes import tasks as task_changes
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.placing import Placing
from carrel_scheduler.core.layers import Bools, Counts, Footprint
from carrel_scheduler.core.nodes.free_capacity import FreeCapacity
from carrel_scheduler.core.preemption import (
    consolidate,
    legality,
    own_queue,
    preempt_and_reclaim,
    rules,
    vectorised,
)
from carrel_scheduler.core.preemption.candidates import VictimTable
from carrel_scheduler.core.preemption.legality import ReclaimRequest
from carrel_scheduler.core.preemption.sequential import Search
from carrel_scheduler.core.queues import usage
from carrel_scheduler.core.queues.usage import LimitViolation, QueueUsage, find_violation
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import ANYWHERE, Request
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.work.jobs import JobInfo, protected_members

Wrong = tuple[object, str, object]


@dataclass(frozen=True)
class Broken:
    """A broken rule: what is put where, and the invariants one of which notices."""

    name: str
    wrong: tuple[Wrong, ...]
    noticed_by: tuple[str, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While it is broken."""
        with ExitStack() as stack:
            for where, name, function in self.wrong:
                stack.enter_context(patch.object(where, name, function))
            yield


def _without(token: Token) -> Callable[..., LimitViolation | None]:
    """Barriers that overlook one kind of bound."""

    def found(table: Any, leaf: int, asked: Any, held: Any) -> LimitViolation | None:
        bounds = list(table.bounds)
        bounds[leaf] = [bound for bound in bounds[leaf] if bound[3] is not token]
        twin = object.__new__(type(table))
        twin.__dict__.update(table.__dict__, bounds=bounds)
        return find_violation(twin, leaf, asked, held)

    return found


_of, _footprint, _alike, _begin, _rows_of = (
    Eligible.of,
    Cycle.footprint,
    Placing._alike,
    QueueUsage.__init__,
    VictimTable.rows_of,
)


def _anywhere(self: Eligible, request: Request) -> Bools:
    return _of(self, replace(request, where=ANYWHERE))


def _on_the_first(self: Cycle, cls: int, node: int, **more: Any) -> Footprint | None:
    place = _footprint(self, cls, node, **more)
    if place is None or len(place.devices) != 1 or place.share == MILLI or place.slots:
        return place
    return msgspec.structs.replace(place, devices=(0,))


def _only_some(
    self: Placing, cls: int, indices: list[int], within: Bools, score: Counts | None
) -> bool:
    return _alike(self, cls, indices[:1], within, score)


def _together(
    self: Placing, cls: int, indices: list[int], within: Bools, score: Counts | None, key: str
) -> bool:
    for index in indices:
        counts = self._cycle.counts(cls, soon=self._soon)
        node = int((counts * within).argmax())
        if not counts[node] or not within[node] or not self._take(cls, [index], node):
            return False
    return True


def _no_core(job: JobInfo) -> frozenset[int]:
    return frozenset() if job.shape.elastic else protected_members(job)


def _used_twice(self: QueueUsage, columns: Any, division: Any, total: Any) -> None:
    _begin(self, columns, division, total)
    self.used, self.fixed = columns.used.tolist(), columns.fixed.tolist()


def _nowhere(self: FreeCapacity, *_: Any, **__: Any) -> None:
    """Hold nothing."""


def _one_more(self: VictimTable, units: Counts) -> Counts:
    first = range(min(len(self.first), 1))
    return _rows_of(self, np.union1d(units, first).astype(np.int64))


def _all_nodes(
    self: Placing, group: Any, level: Any, first: int, indices: Sequence[int], within: Bools
) -> Iterator[Bools]:
    return iter([within])


BROKEN = (
    Broken(
        "limits are overlooked",
        ((usage, "find_violation", _without(Token.OVER_LIMIT)),),
        ("limits_held", "starts_keep_to_rules"),
    ),
    Broken(
        "non-preemptible work goes beyond quota",
        ((usage, "find_violation", _without(Token.NON_PREEMPTIBLE_BEYOND_QUOTA)),),
        ("non_preemptible_within_quota", "starts_keep_to_rules"),
    ),
    Broken(
        "everybody borrows",
        ((usage, "find_violation", _without(Token.OVER_QUOTA_OFF)),),
        ("starts_keep_to_rules",),
    ),
    Broken(
        "every victim is legal",
        (
            (ReclaimRequest, "legal", lambda *_, **__: True),
            (vectorised, "budgets_of", lambda cycle, *_: vectorised.open_budgets(cycle)),
        ),
        ("nobody_within_quota_is_reclaimed",),
    ),
    Broken(
        "one more gives way than has to",
        ((VictimTable, "rows_of", _one_more),),
        ("victims_are_needed",),
    ),
    Broken(
        "claims go beyond the fair share",
        ((ReclaimRequest, "_beyond_fair_share", lambda _: None),),
        ("claims_stay_within_the_fair_share",),
    ),
    Broken(
        "room is held from nobody",
        (
            (FreeCapacity, "reserve", _nowhere),
            (FreeCapacity, "unreserve", _nowhere),
            (FreeCapacity, "reserve_many", _nowhere),
        ),
        ("holds_are_honoured", "the plan contradicts the state"),
    ),
    Broken("gangs start in part", ((Placing, "_alike", _only_some),), ("gangs_start_whole",)),
    Broken(
        "the core is not protected",
        ((task_changes, "protected_members", _no_core),),
        ("protected_are_no_victims", "job_columns_equal_recount"),
    ),
    Broken(
        "shares overflow a device",
        ((Cycle, "footprint", _on_the_first),),
        ("bindings_take_free_room", "holds_are_honoured", "the plan contradicts the state"),
    ),
    Broken(
        "topology is ignored",
        ((Placing, "_candidates", _all_nodes),),
        ("required_topology_respected",),
    ),
    Broken("members lie together", ((Placing, "_apart", _together),), ("members_apart",)),
    Broken(
        "conditions on nodes are ignored",
        ((Eligible, "of", _anywhere),),
        ("node_conditions_respected",),
    ),
    Broken(
        "minimum run times are ignored",
        tuple(
            (where, name, lambda *_: 0.0)
            for where, name in (
                (legality, "reclaim_protects_s"),
                (vectorised, "reclaim_protects_s"),
                (rules, "preempt_protects_s"),
                (own_queue, "preempt_protects_s"),
                (preempt_and_reclaim, "preempt_protects_s"),
            )
        ),
        ("minimum_run_times_respected",),
    ),
    Broken(
        "two claims use one right",
        ((QueueUsage, "__init__", _used_twice),),
        ("starts_keep_to_rules", "limits_held", "non_preemptible_within_quota"),
    ),
    Broken(
        "what moves needs no place",
        (
            (Search, "_move_all", lambda *_: True),
            (consolidate, "relocate", lambda *_: True),
            (consolidate, "relocate_together", lambda *_: True),
        ),
        ("consolidation_only_moves",),
    ),
    Broken(
        "delays are ignored", ((Cycle, "delayed", lambda *_, **__: False),), ("delays_respected",)
    ),
    Broken(
        "stale gangs get no grace",
        ((evictions, "_is_over", lambda *_: True),),
        ("stale_gangs_outlived_their_grace",),
    ),
)
"""All of them."""
