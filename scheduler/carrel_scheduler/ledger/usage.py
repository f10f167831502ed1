"""Use of resources from transitions alone. Pure arithmetic, no database.

A transition says what a workload holds from its time on, so each one opens a span that the next
one of the same workload closes. What a span counts in [since, until) is its part inside it; the
last span of a workload is open and reaches to ``until``. Hence usage(a, b) + usage(b, c) =
usage(a, c), and any grouping sums up to the same.

What is allocated is summed up in integers: thousandths of GPUs and cores, and bytes, times whole
microseconds. Times are rounded before they are subtracted, so parts add up to the whole to the
last bit; floats begin where a sum is answered.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import msgspec

from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.records import GpuUse, Transition, Usage
from carrel_schema.governance.prices import PricePeriod

WAITING: Final = "pending"
GIVING_WAY: Final = "preempting"
MICROSECONDS: Final = 1_000_000
"""Of a second."""
MILLI: Final = 1000


def _microseconds(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


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

    @property
    def is_preemption(self) -> bool:
        """Whether it begins with the workload giving way."""
        return self.to_phase == GIVING_WAY and self.from_phase != GIVING_WAY

    def microseconds(self, since: float, until: float) -> int:
        """Its length inside [since, until), whose ends are in epoch seconds."""
        end = until if self.ended_at is None else min(self.ended_at, until)
        return max(0, _microseconds(end) - _microseconds(max(self.at, since)))

    def seconds(self, since: float, until: float) -> float:
        """Its length inside [since, until)."""
        return self.microseconds(since, until) / MICROSECONDS


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
    """Spans of transitions given in order of id, complete for each workload in them.

    Rows with the fields of a span other than ``ended_at`` will do.
    """
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


class Allocated(msgspec.Struct):
    """What was allocated in a span of time, in integers that grow.

    Attributes:
        gpu: thousandths of GPUs times microseconds.
        borrowed: the part of ``gpu`` that was over quota.
        cpu: thousandths of cores times microseconds.
        memory: bytes times microseconds.
        waiting: microseconds of pending workloads.
    """

    gpu: int = 0
    borrowed: int = 0
    cpu: int = 0
    memory: int = 0
    waiting: int = 0

    def add(self, span: Span, microseconds: int) -> None:
        """Count so much of a span."""
        self.gpu += span.gpu_milli * microseconds
        self.cpu += span.cpu_milli * microseconds
        self.memory += span.memory_bytes * microseconds
        if span.borrowed:
            self.borrowed += span.gpu_milli * microseconds
        if span.to_phase == WAITING:
            self.waiting += microseconds

    def join(self, other: "Allocated") -> None:
        """Count what was summed up elsewhere."""
        self.gpu += other.gpu
        self.borrowed += other.borrowed
        self.cpu += other.cpu
        self.memory += other.memory
        self.waiting += other.waiting

    def cost(self, price: PricePeriod) -> float:
        """What it costs by one price, in its currency."""
        hour = 3600 * MICROSECONDS
        return (
            self.gpu / (MILLI * hour) * price.gpu_hour
            + self.cpu / (MILLI * hour) * price.cpu_hour
            + self.memory / (2**30 * hour) * price.memory_gib_hour
        )


class Total(msgspec.Struct, kw_only=True):
    """What finished workloads held in all; of ``project`` to ``kind`` what they have in common."""

    project: str = ""
    user: str = ""
    workload: str = ""
    kind: str = ""
    workloads: int = 0
    preemptions: int = 0
    allocated: Allocated = msgspec.field(default_factory=Allocated)


def total_of(spans_: Iterable[Span]) -> Total:
    """The total of one workload that holds nothing any more, by all of its spans."""
    found = Total(workloads=1)
    for span in spans_:
        if span.ended_at is not None:
            found.allocated.add(span, span.microseconds(span.at, span.ended_at))
        found.preemptions += span.is_preemption
    return found


class Line:
    """One line of the account, growing."""

    def __init__(self, prices: Sequence[PricePeriod]) -> None:
        self.allocated = Allocated()
        self.used: list[float] = []
        self.idle: list[float] = []
        self.priced = [(price, Allocated()) for price in prices]
        self.preemptions = 0
        self.workloads: set[str] = set()
        self.aggregated = 0

    @property
    def counts(self) -> bool:
        """Whether any workload counts for it."""
        return bool(self.workloads or self.aggregated)

    def add_total(self, total: Total, price: int | None) -> None:
        """Count finished workloads that lie in the period as a whole, at one of the prices."""
        self.aggregated += total.workloads
        self.preemptions += total.preemptions
        self.allocated.join(total.allocated)
        if price is not None:
            self.priced[price][1].join(total.allocated)

    def add(self, span: Span, since: float, until: float) -> None:
        """Count the part of a span inside [since, until)."""
        length = span.microseconds(since, until)
        begins_inside = since <= span.at < until
        if not ((length and span.counts) or begins_inside):
            return
        self.workloads.add(span.workload_uid)
        self.allocated.add(span, length)
        for number, (price, allocated) in enumerate(self.priced):
            after = number + 1
            ends = self.priced[after][0].since if after < len(self.priced) else until
            allocated.add(span, span.microseconds(max(since, price.since), min(until, ends)))
        self.preemptions += begins_inside and span.is_preemption

    def add_measured(self, piece: GpuUse, since: float, until: float) -> None:
        """Count the part of what was measured inside [since, until)."""
        inside = min(piece.until, until) - max(piece.since, since)
        part = max(0.0, inside) / (piece.until - piece.since)
        self.used.append(piece.used_gpu_seconds * part)
        self.idle.append(piece.idle_gpu_seconds * part)

    def usage(self, key: str) -> Usage:
        """The answer, where integers become floats."""
        milli = MILLI * MICROSECONDS
        return Usage(
            key=key,
            gpu_seconds=self.allocated.gpu / milli,
            borrowed_gpu_seconds=self.allocated.borrowed / milli,
            cpu_seconds=self.allocated.cpu / milli,
            memory_byte_seconds=self.allocated.memory / MICROSECONDS,
            wait_seconds=self.allocated.waiting / MICROSECONDS,
            preemptions=self.preemptions,
            workloads=len(self.workloads) + self.aggregated,
            gpu_used_seconds=math.fsum(self.used),
            gpu_idle_seconds=math.fsum(self.idle),
            cost=math.fsum(allocated.cost(price) for price, allocated in self.priced),
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
    aggregated: Iterable[tuple[int, Total]] = (),
) -> Sequence[Usage]:
    """Use by one of ``GROUPINGS`` in [since, until); workloads are ``project/name``.

    ``departments`` are those of projects, ``prices`` in order of time. ``aggregated`` are totals of
    workloads that have no span here, each with the number of its window (``price_windows``).

    ``borrowed_gpu_seconds`` are a part of ``gpu_seconds``. A line counts a workload that held or
    waited for something or changed its phase meanwhile. Lines are in order of key.
    """
    sums = sums_of(
        spans_, measured, by=by, since=since, until=until, departments=departments, prices=prices
    )
    prices_of = [price for _, _, price in price_windows(prices, since, until)]
    lines = defaultdict(lambda: Line(prices), sums)
    for window, total in aggregated:
        lines[_key_of_total(by, departments, total)].add_total(total, prices_of[window])
    return [lines[name].usage(name) for name in sorted(lines) if lines[name].counts]


def price_windows(
    prices: Sequence[PricePeriod], since: float, until: float
) -> list[tuple[float, float, int | None]]:
    """Parts of [since, until) with one price each: begin, end, number of the price or ``None``."""
    begins = [min(max(price.since, since), until) for price in prices]
    found: list[tuple[float, float, int | None]] = [(since, begins[0] if begins else until, None)]
    found += [
        (begin, end, number) for number, (begin, end) in enumerate(pairwise([*begins, until]))
    ]
    return [window for window in found if window[0] < window[1]]


def _key_of_total(by: str, departments: Mapping[str, str], total: Total) -> str:
    match by:
        case "department":
            return departments.get(total.project) or NO_DEPARTMENT
        case "workload":
            return f"{total.project}/{total.workload}"
        case _:
            key: str = getattr(total, by)
            return key


def sums_of(
    spans_: Iterable[Span],
    measured: Iterable[GpuUse] = (),
    *,
    by: str,
    since: float,
    until: float,
    departments: Mapping[str, str] = MappingProxyType({}),
    prices: Sequence[PricePeriod] = (),
) -> Mapping[str, Line]:
    """The lines of ``account`` by key, with integers for what was allocated."""
    check_range(by, since, until)
    found = list(spans_)
    key = _key_of(by, departments, {span.workload_uid: span.kind for span in found})
    sums: defaultdict[str, Line] = defaultdict(lambda: Line(prices))
    for span in found:
        sums[key(span)].add(span, since, until)
    for piece in measured:
        sums[key(piece)].add_measured(piece, since, until)
    return sums


def series(
    spans_: Iterable[Span],
    *,
    by: str,
    since: float,
    until: float,
    buckets: int,
    departments: Mapping[str, str] = MappingProxyType({}),
    aggregated: Iterable[tuple[int, Total]] = (),
) -> dict[str, list[float]]:
    """GPU-seconds allocated in each of so many equal parts of [since, until), by key.

    ``aggregated`` are totals of workloads that have no span here, each with the number of its part.
    """
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
    for number, total in aggregated:
        if total.allocated.gpu:
            line = sums.setdefault(_key_of_total(by, departments, total), [0.0] * buckets)
            line[number] += total.allocated.gpu / (MILLI * MICROSECONDS)
    return dict(sorted(sums.items()))
