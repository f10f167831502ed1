"""Use of resources from transitions alone. Pure arithmetic, no database.

What a span (see ``spans``) counts in [since, until) is its part inside it; the last span of a
workload is open and reaches to ``until``. Hence usage(a, b) + usage(b, c) = usage(a, c), and any
grouping sums up to the same.

Only the number of workloads does not add up where use is summed up by places: one that held
something at several counts for each of them, and for ``NOWHERE`` if it held nothing at any.

What is allocated is summed up in integers: thousandths of GPUs and cores, and bytes, times whole
microseconds. Times are rounded before they are subtracted, so parts add up to the whole to the
last bit; floats begin where a sum is answered.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import msgspec

from carrel_scheduler.ledger.accounting.spans import (
    BY_PLACE,
    GROUPINGS,
    MICROSECONDS,
    NO_DEPARTMENT,
    NOWHERE,
    WAITING,
    PlaceKey,
    UsageSpan,
    key_of,
    keyed,
    measured_key,
    parts,
)
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.records import GpuUse, Usage
from carrel_schema.governance.costs import PricePeriod

MILLI: Final = 1000


class Allocated(msgspec.Struct):
    """Allocated amounts in a period, as integers that are summed up.

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

    def add(self, span: UsageSpan, microseconds: int) -> None:
        """Count so much of a span."""
        self.gpu += span.gpu_milli * microseconds
        self.cpu += span.cpu_milli * microseconds
        self.memory += span.memory_bytes * microseconds
        if span.borrowed:
            self.borrowed += span.gpu_milli * microseconds
        if span.to_phase == WAITING:
            self.waiting += microseconds

    def join(self, other: "Allocated") -> None:
        """Add amounts that were summed up elsewhere."""
        self.gpu += other.gpu
        self.borrowed += other.borrowed
        self.cpu += other.cpu
        self.memory += other.memory
        self.waiting += other.waiting

    def cost(self, price: PricePeriod) -> float:
        """The cost at one price, in its currency."""
        hour = 3600 * MICROSECONDS
        return (
            self.gpu / (MILLI * hour) * price.gpu_hour
            + self.cpu / (MILLI * hour) * price.cpu_hour
            + self.memory / (2**30 * hour) * price.memory_gib_hour
        )


class Total(msgspec.Struct, kw_only=True):
    """The allocations of finished workloads, summed; of the texts those that they have in common.

    ``gpu_type`` and ``node_group`` are as lines of the account are called.
    """

    project: str = ""
    user: str = ""
    workload: str = ""
    kind: str = ""
    gpu_type: str = ""
    node_group: str = ""
    workloads: int = 0
    preemptions: int = 0
    allocated: Allocated = msgspec.field(default_factory=Allocated)


def totals_of(spans_: Iterable[UsageSpan]) -> Sequence[tuple[PlaceKey, Total]]:
    """The totals of one workload that holds nothing any more, by where it held something.

    All of its waiting is in the first one. Without anything held there is one, of no place.
    """
    found: dict[PlaceKey, Total] = {}
    waiting = 0
    for span in spans_:
        for place, part in parts(span):
            length = 0 if span.ended_at is None else part.microseconds(span.at, span.ended_at)
            if part.holds or part.is_preemption:
                total = found.setdefault(place, Total())
                total.workloads |= part.holds
                total.preemptions += part.is_preemption
                total.allocated.add(part, length)
            elif part.to_phase == WAITING:
                waiting += length
    lines = sorted(found.items(), key=lambda line: not line[1].workloads)
    if not lines:
        lines = [((NOWHERE, NOWHERE), Total())]
    if not lines[0][1].workloads:
        lines[0][1].workloads = 1
    lines[0][1].allocated.waiting += waiting
    return lines


class UsageLine:
    """A line of the account while it is summed up.

    Attributes:
        workloads: uids of those that held something.
        without: uids of those that waited or changed their phase with nothing held.
        aggregated: how many others count for it.
    """

    def __init__(self, prices: Sequence[PricePeriod]) -> None:
        self.allocated = Allocated()
        self.used: list[float] = []
        self.idle: list[float] = []
        self.priced = [(price, Allocated()) for price in prices]
        self.preemptions = 0
        self.workloads: set[str] = set()
        self.without: set[str] = set()
        self.aggregated = 0

    @property
    def counts(self) -> bool:
        """Whether any amount is above zero."""
        counted = self.workloads or self.aggregated or self.preemptions
        return bool(counted or self.allocated.waiting or any(self.used) or any(self.idle))

    def add_total(self, total: Total, price: int | None) -> None:
        """Count finished workloads that lie in the period as a whole, at one of the prices."""
        self.aggregated += total.workloads
        self.preemptions += total.preemptions
        self.allocated.join(total.allocated)
        if price is not None:
            self.priced[price][1].join(total.allocated)

    def add(self, span: UsageSpan, since: float, until: float) -> None:
        """Count the part of a span inside [since, until)."""
        length = span.microseconds(since, until)
        begins_inside = since <= span.at < until
        if not ((length and span.counts) or begins_inside):
            return
        (self.workloads if span.holds else self.without).add(span.workload_uid)
        self.allocated.add(span, length)
        for number, (price, allocated) in enumerate(self.priced):
            after = number + 1
            ends = self.priced[after][0].since if after < len(self.priced) else until
            allocated.add(span, span.microseconds(max(since, price.since), min(until, ends)))
        self.preemptions += begins_inside and span.is_preemption

    def add_measured(self, piece: GpuUse, since: float, until: float) -> None:
        """Add the part of measured use inside [since, until)."""
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
    """Raise ``InvalidArgument`` for an unknown grouping or an invalid period."""
    if by not in GROUPINGS:
        raise InvalidArgument("by", by, "one of " + ", ".join(GROUPINGS))
    if not math.isfinite(since):
        raise InvalidArgument("since", since, "a time in epoch seconds")
    if not (math.isfinite(until) and until >= since):
        raise InvalidArgument("until", until, f"a time in epoch seconds from {since} on")


def account(
    spans_: Iterable[UsageSpan],
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
    lines = defaultdict(lambda: UsageLine(prices), sums)
    for window, total in aggregated:
        for key, one in _lines_of_total(by, departments, total):
            lines[key].add_total(one, prices_of[window])
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


def _lines_of_total(
    by: str, departments: Mapping[str, str], total: Total
) -> Sequence[tuple[str, Total]]:
    """The keys to which a total belongs; waiting has no place."""
    match by:
        case "department":
            return [(departments.get(total.project) or NO_DEPARTMENT, total)]
        case "workload":
            return [(f"{total.project}/{total.workload}", total)]
        case "gpu-type" | "node-group":
            key = total.gpu_type if by == "gpu-type" else total.node_group
            waiting, allocated = total.allocated.waiting, msgspec.structs.replace(total.allocated)
            allocated.waiting = 0
            held = msgspec.structs.replace(total, allocated=allocated)
            waited = Total(allocated=Allocated(waiting=waiting))
            return [(key, held), (NOWHERE, waited)] if waiting else [(key, held)]
        case _:
            return [(getattr(total, by), total)]


def sums_of(
    spans_: Iterable[UsageSpan],
    measured: Iterable[GpuUse] = (),
    *,
    by: str,
    since: float,
    until: float,
    departments: Mapping[str, str] = MappingProxyType({}),
    prices: Sequence[PricePeriod] = (),
) -> Mapping[str, UsageLine]:
    """The lines of ``account`` by key, with allocated amounts as integers."""
    check_range(by, since, until)
    found = list(spans_)
    kinds = {span.workload_uid: span.kind for span in found}
    key = None if by in BY_PLACE else key_of(by, departments, kinds)
    sums: defaultdict[str, UsageLine] = defaultdict(lambda: UsageLine(prices))
    for name, span in keyed(by, found, key):
        sums[name].add(span, since, until)
    for piece in measured:
        name = measured_key(by, piece) if key is None else key(piece)
        sums[name].add_measured(piece, since, until)
    for line in list(sums.values()):
        line.workloads |= line.without if key is not None else set()
    if key is None:
        held = set().union(*(line.workloads for line in sums.values()))
        without = set().union(*(line.without for line in sums.values())) - held
        if without:
            sums[NOWHERE].workloads |= without
    return sums


def series(
    spans_: Iterable[UsageSpan],
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
    kinds = {span.workload_uid: span.kind for span in found}
    key = None if by in BY_PLACE else key_of(by, departments, kinds)
    width = (until - since) / buckets
    sums: dict[str, list[float]] = {}
    for name, span in keyed(by, found, key):
        if not span.gpu_milli or not span.seconds(since, until):
            continue
        line = sums.setdefault(name, [0.0] * buckets)
        ends = until if span.ended_at is None else min(span.ended_at, until)
        first = int((max(span.at, since) - since) / width)
        last = min(int((ends - since) / width), buckets - 1)
        for number in range(first, last + 1):
            inside = span.seconds(since + number * width, since + (number + 1) * width)
            line[number] += span.gpu_milli / 1000 * inside
    return dict(sorted(sums.items()))


def with_totals(
    lines: Mapping[str, Sequence[float]],
    totals: Iterable[tuple[int, Total]],
    *,
    by: str,
    buckets: int,
    departments: Mapping[str, str] = MappingProxyType({}),
    keys: Collection[str] | None = None,
) -> dict[str, list[float]]:
    """``series``, with totals of workloads that have no span, each with the number of its part.

    With ``keys`` only these lines.
    """
    sums = {name: [*line] for name, line in lines.items()}
    for number, total in totals:
        if total.allocated.gpu:
            name, _ = _lines_of_total(by, departments, total)[0]
            line = sums.setdefault(name, [0.0] * buckets)
            line[number] += total.allocated.gpu / (MILLI * MICROSECONDS)
    return {name: sums[name] for name in sorted(sums) if keys is None or name in keys}


def largest(
    by: str,
    most: int,
    lines: Mapping[str, Sequence[float]],
    totals: Iterable[Total],
    departments: Mapping[str, str] = MappingProxyType({}),
) -> frozenset[str]:
    """The keys of so many lines that hold most GPU-seconds; of equal ones the first by name.

    Args:
        by: the grouping.
        most: how many.
        lines: ``series`` of the workloads that have spans.
        totals: of all others, of the whole period.
        departments: those of projects.
    """
    sums = {name: sum(line) for name, line in lines.items()}
    for total in totals:
        name, _ = _lines_of_total(by, departments, total)[0]
        sums[name] = sums.get(name, 0.0) + total.allocated.gpu / (MILLI * MICROSECONDS)
    return frozenset(sorted(sums, key=lambda name: (-sums[name], name))[:most])


def first_columns(
    by: str, keys: Collection[str], departments: Mapping[str, str]
) -> Sequence[str] | None:
    """The values of the first column that totals of these lines are grouped by; ``None``: all.

    That column holds the project for departments and workloads, else what the key says.
    """
    match by:
        case "department":
            within = [project for project, name in departments.items() if name in keys]
            return None if NO_DEPARTMENT in keys else sorted(within)
        case "workload":
            return sorted({key.partition("/")[0] for key in keys})
        case _:
            return sorted(keys)
