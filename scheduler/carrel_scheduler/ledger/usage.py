"""Use of resources from transitions alone. Pure arithmetic, no database.

A transition says what a workload holds from its time on, so each one opens a span that the next
one of the same workload closes. What a span counts in [since, until) is its part inside it; the
last span of a workload is open and reaches to ``until``. Hence usage(a, b) + usage(b, c) =
usage(a, c), and any grouping sums up to the same.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.records import GpuUse, Transition, Usage
from carrel_schema.governance.prices import PricePeriod

WAITING: Final = "pending"
GIVING_WAY: Final = "preempting"


class Span(msgspec.Struct, frozen=True):
    """What a workload held from ``at`` to ``ended_at`` (``None``: still does).

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
    ended_at: float | None

    @property
    def counts(self) -> bool:
        """True while it waits or holds anything."""
        held = self.gpu_milli or self.cpu_milli or self.memory_bytes
        return bool(held) or self.to_phase == WAITING

    def seconds(self, since: float, until: float) -> float:
        """Its length inside [since, until)."""
        end = until if self.ended_at is None else min(self.ended_at, until)
        return max(0.0, end - max(self.at, since))


NO_DEPARTMENT: Final = "default"
GROUPINGS: Final = ("department", "project", "user", "workload", "kind")
"""What use is summed up by; work of a project without department counts for the default one."""
Key = Callable[[Span | GpuUse], str]


def _key_of(by: str, departments: Mapping[str, str], kinds: Mapping[str, str]) -> Key:
    """What a span or a measured piece counts for; ``kinds`` are those of workloads by uid."""
    keys: dict[str, Key] = {
        "department": lambda one: departments.get(one.project) or NO_DEPARTMENT,
        "project": lambda one: one.project,
        "user": lambda one: one.user,
        "workload": lambda one: f"{one.project}/{one.workload}",
        "kind": lambda one: kinds.get(one.workload_uid, ""),
    }
    return keys[by]


def spans(transitions: Iterable[Transition]) -> Iterator[Span]:
    """Spans of transitions given in order of id, complete for each workload in them."""
    open_rows: dict[str, Transition] = {}
    for row in transitions:
        before = open_rows.get(row.workload_uid)
        if before is not None:
            yield _span(before, row.at)
        open_rows[row.workload_uid] = row
    for row in open_rows.values():
        yield _span(row, None)


def _span(row: Transition, ended_at: float | None) -> Span:
    fields = {name: getattr(row, name) for name in Span.__struct_fields__ if name != "ended_at"}
    return Span(**fields, ended_at=ended_at)


class _Sum:
    """One line of the account, growing."""

    def __init__(self) -> None:
        self.gpu: list[float] = []
        self.borrowed: list[float] = []
        self.cpu: list[float] = []
        self.memory: list[float] = []
        self.waiting: list[float] = []
        self.used: list[float] = []
        self.idle: list[float] = []
        self.cost: list[float] = []
        self.preemptions = 0
        self.workloads: set[str] = set()

    def add(self, span: Span, since: float, until: float, prices: Sequence[PricePeriod]) -> None:
        seconds = span.seconds(since, until)
        begins_inside = since <= span.at < until
        if not ((seconds and span.counts) or begins_inside):
            return
        self.workloads.add(span.workload_uid)
        self.gpu.append(span.gpu_milli / 1000 * seconds)
        self.cpu.append(span.cpu_milli / 1000 * seconds)
        self.memory.append(span.memory_bytes * seconds)
        if span.borrowed:
            self.borrowed.append(self.gpu[-1])
        self.cost += _costs(span, since, until, prices)
        if span.to_phase == WAITING:
            self.waiting.append(seconds)
        self.preemptions += (
            begins_inside and span.to_phase == GIVING_WAY and span.from_phase != GIVING_WAY
        )

    def add_measured(self, piece: GpuUse, since: float, until: float) -> None:
        inside = min(piece.until, until) - max(piece.since, since)
        part = max(0.0, inside) / (piece.until - piece.since)
        self.used.append(piece.used_gpu_seconds * part)
        self.idle.append(piece.idle_gpu_seconds * part)

    def usage(self, key: str) -> Usage:
        # Exact sums: the order of rows and the way they are grouped make no difference.
        return Usage(
            key=key,
            gpu_seconds=math.fsum(self.gpu),
            borrowed_gpu_seconds=math.fsum(self.borrowed),
            cpu_seconds=math.fsum(self.cpu),
            memory_byte_seconds=math.fsum(self.memory),
            wait_seconds=math.fsum(self.waiting),
            preemptions=self.preemptions,
            workloads=len(self.workloads),
            gpu_used_seconds=math.fsum(self.used),
            gpu_idle_seconds=math.fsum(self.idle),
            cost=math.fsum(self.cost),
        )


def _costs(
    span: Span, since: float, until: float, prices: Sequence[PricePeriod]
) -> Iterator[float]:
    """What a span costs inside [since, until), by the prices that hold in each part of it."""
    for number, price in enumerate(prices):
        ends = prices[number + 1].since if number + 1 < len(prices) else math.inf
        hours = span.seconds(max(since, price.since), min(until, ends)) / 3600
        if hours:
            yield hours * (
                span.gpu_milli / 1000 * price.gpu_hour
                + span.cpu_milli / 1000 * price.cpu_hour
                + span.memory_bytes / 2**30 * price.memory_gib_hour
            )


def check_range(by: str, since: float, until: float) -> None:
    """Raises ``InvalidArgument`` for a grouping or a span of time that cannot be."""
    if by not in GROUPINGS:
        raise InvalidArgument("by", by, "one of " + ", ".join(GROUPINGS))
    if not math.isfinite(since):
        raise InvalidArgument("since", since, "a time in epoch seconds")
    if not (math.isfinite(until) and until >= since):
        raise InvalidArgument("until", until, f"a time in epoch seconds from {since} on")


def account(
    spans_: Iterable[Span],
    measured: Iterable[GpuUse] = (),
    *,
    by: str,
    since: float,
    until: float,
    departments: Mapping[str, str] = MappingProxyType({}),
    prices: Sequence[PricePeriod] = (),
) -> Sequence[Usage]:
    """Use by one of ``GROUPINGS`` in [since, until); workloads are ``project/name``.

    ``departments`` are those of projects, ``prices`` in order of time.

    ``borrowed_gpu_seconds`` are a part of ``gpu_seconds``. A line counts a workload that held or
    waited for something or changed its phase meanwhile. Lines are in order of key.
    """
    check_range(by, since, until)
    found = list(spans_)
    key = _key_of(by, departments, {span.workload_uid: span.kind for span in found})
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for span in found:
        sums[key(span)].add(span, since, until, prices)
    for piece in measured:
        sums[key(piece)].add_measured(piece, since, until)
    return [sums[name].usage(name) for name in sorted(sums) if sums[name].workloads]


def series(
    spans_: Iterable[Span],
    *,
    by: str,
    since: float,
    until: float,
    buckets: int,
    departments: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, list[float]]:
    """GPU-seconds allocated in each of so many equal parts of [since, until), by key."""
    check_range(by, since, until)
    found = list(spans_)
    key = _key_of(by, departments, {span.workload_uid: span.kind for span in found})
    width = (until - since) / buckets
    sums: dict[str, list[float]] = {}
    for span in found:
        if not span.gpu_milli or not span.seconds(since, until):
            continue
        line = sums.setdefault(key(span), [0.0] * buckets)
        ends = until if span.ended_at is None else min(span.ended_at, until)
        first = int((max(span.at, since) - since) / width)
        last = min(int((ends - since) / width), buckets - 1)
        for number in range(first, last + 1):
            inside = span.seconds(since + number * width, since + (number + 1) * width)
            line[number] += span.gpu_milli / 1000 * inside
    return dict(sorted(sums.items()))
