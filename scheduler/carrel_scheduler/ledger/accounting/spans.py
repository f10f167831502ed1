"""Spans of time from transitions, and what a span counts for. Pure arithmetic, no database.

A transition says what a workload holds from its time on, so each one opens a span that the next
one of the same workload closes; the last span of a workload is open.

What a span counts for is its project, its user and the like, or where what it holds is: then it is
divided by the GPU types and groups of its nodes (``parts``). The amounts of the parts add up to
those of the span: what no place accounts for is a part, too. Its waiting is where nothing is held,
and a preemption counts at its first place.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from carrel_scheduler.ledger.columns.codec import places_from_json
from carrel_scheduler.ledger.records import GpuUse, Transition
from carrel_schema.history import PlaceUse

WAITING: Final = "pending"
GIVING_WAY: Final = "preempting"
MICROSECONDS: Final = 1_000_000
"""Microseconds in a second."""


def microseconds_of(seconds: float) -> int:
    """Time in whole microseconds, so that differences add up exactly."""
    return round(seconds * MICROSECONDS)


class UsageSpan(msgspec.Struct, frozen=True):
    """A workload's allocation from ``at`` to ``ended_at`` (``None``: still held).

    Order follows the rows, not their times: should a clock have been set back, a span that ends
    before it begins counts nothing.
    """

    at: float
    workload_uid: str
    workload: str
    project: str
    user: str
    kind: str
    to_phase: str
    from_phase: str
    gpu_milli: int
    cpu_milli: int
    memory_bytes: int
    borrowed: bool
    places: tuple[PlaceUse, ...]
    ended_at: float | None

    @property
    def holds(self) -> bool:
        """Whether the workload holds anything."""
        return bool(self.gpu_milli or self.cpu_milli or self.memory_bytes)

    @property
    def counts(self) -> bool:
        """Whether the workload waits or holds anything."""
        return self.holds or self.to_phase == WAITING

    @property
    def is_preemption(self) -> bool:
        """Whether the span begins with an eviction of the workload."""
        return self.to_phase == GIVING_WAY and self.from_phase != GIVING_WAY

    def microseconds(self, since: float, until: float) -> int:
        """The length of the part inside [since, until), given in epoch seconds."""
        end = until if self.ended_at is None else min(self.ended_at, until)
        return max(0, microseconds_of(end) - microseconds_of(max(self.at, since)))

    def seconds(self, since: float, until: float) -> float:
        """The length of the part inside [since, until)."""
        return self.microseconds(since, until) / MICROSECONDS


SPAN_FIELDS: Final = tuple(name for name in UsageSpan.__struct_fields__ if name != "ended_at")
"""The fields that a row of the past has."""


def spans(transitions: Iterable[Transition]) -> Iterator[UsageSpan]:
    """Spans of transitions given in order of id, complete for each workload in them.

    Rows of the database with the fields of ``SPAN_FIELDS`` will do.
    """
    open_rows: dict[str, Transition] = {}
    for row in transitions:
        before = open_rows.get(row.workload_uid)
        if before is not None:
            yield _span(before, row.at)
        open_rows[row.workload_uid] = row
    for row in open_rows.values():
        yield _span(row, None)


def _span(row: Transition, ended_at: float | None) -> UsageSpan:
    fields: dict[str, Any] = {name: getattr(row, name) for name in SPAN_FIELDS}
    if isinstance(fields["places"], str):
        fields["places"] = places_from_json(fields["places"])
    return UsageSpan(**fields, ended_at=ended_at)


NO_DEPARTMENT: Final = "default"
NOWHERE: Final = "(none)"
"""Work that waits, work without GPUs among GPU types, nodes without a group among groups."""
UNKNOWN: Final = "(unknown)"
"""The GPU type or group of an allocation for which none is recorded."""
BY_PLACE: Final = ("gpu-type", "node-group")
"""Groupings by where something is."""
GROUPINGS: Final = ("department", "project", "user", "workload", "kind", *BY_PLACE)
"""The groupings of use; work of a project without department counts for the default one."""
PlaceKey = tuple[str, str]
"""A GPU type and a node group, as lines of the account are called."""
Key = Callable[[UsageSpan | GpuUse], str]


def key_of(by: str, departments: Mapping[str, str], kinds: Mapping[str, str]) -> Key:
    """The key of a span or a measured piece, by a grouping that is not of ``BY_PLACE``.

    ``kinds`` are those of workloads by uid, for pieces that do not tell.
    """
    keys: dict[str, Key] = {
        "department": lambda one: departments.get(one.project) or NO_DEPARTMENT,
        "project": lambda one: one.project,
        "user": lambda one: one.user,
        "workload": lambda one: f"{one.project}/{one.workload}",
        "kind": lambda one: one.kind or kinds.get(one.workload_uid, ""),
    }
    return keys[by]


def measured_key(by: str, piece: GpuUse) -> str:
    """The key to which measured use belongs in a grouping of ``BY_PLACE``."""
    known = piece.gpu_type if by == "gpu-type" else piece.node_group
    return known or UNKNOWN


def keyed(by: str, found: Iterable[UsageSpan], key: Key | None) -> Iterator[tuple[str, UsageSpan]]:
    """Spans, or their parts, with what they count for; ``key`` is that of other groupings."""
    for span in found:
        if key is not None:
            yield key(span), span
            continue
        number = BY_PLACE.index(by)
        for place, part in parts(span):
            yield place[number], part


def parts(span: UsageSpan) -> Sequence[tuple[PlaceKey, UsageSpan]]:
    """The span divided by where what it holds is; their amounts add up to its own."""
    if not span.holds:
        return [((NOWHERE, NOWHERE), span)]
    left = PlaceUse(
        gpu_milli=span.gpu_milli - sum(one.gpu_milli for one in span.places),
        cpu_milli=span.cpu_milli - sum(one.cpu_milli for one in span.places),
        memory_bytes=span.memory_bytes - sum(one.memory_bytes for one in span.places),
    )
    found = [(_place_key(one), one) for one in span.places]
    if left.gpu_milli or left.cpu_milli or left.memory_bytes:
        found.append(((UNKNOWN if left.gpu_milli else NOWHERE, UNKNOWN), left))
    divided = [(key, _part(span, one)) for key, one in found]
    if span.to_phase == WAITING:
        return [((NOWHERE, NOWHERE), _part(span, PlaceUse(), span.to_phase)), *divided]
    key, first = divided[0]
    first = msgspec.structs.replace(first, to_phase=span.to_phase, from_phase=span.from_phase)
    return [(key, first), *divided[1:]]


def _place_key(place: PlaceUse) -> PlaceKey:
    gpu_type = (place.gpu_type or UNKNOWN) if place.gpu_milli else NOWHERE
    return gpu_type, place.node_group or NOWHERE


def _part(span: UsageSpan, place: PlaceUse, phase: str = "") -> UsageSpan:
    """An amount of a span, of no phase or of one that it does not change to."""
    return msgspec.structs.replace(
        span,
        gpu_milli=place.gpu_milli,
        cpu_milli=place.cpu_milli,
        memory_bytes=place.memory_bytes,
        from_phase=phase,
        to_phase=phase,
    )
