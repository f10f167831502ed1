"""Totals of each finished workload, from which the database sums up long periods.

``aggregate`` makes rows for each workload from its transitions, some time after they were written:
it goes through them in order of id and makes the rows of all workloads that it meets anew. A
workload has one row, or one for each GPU type and group of nodes where it held something; its
waiting is in the first, and marks tell in which row it counts as a workload. What is
asked for a period is then the sum of the rows that lie in it as a whole (``PeriodPart``), and of
the spans of all other workloads (``elsewhere``): those that reach beyond its ends, those that are
not over, and those with transitions that were not aggregated yet. So answers are the same, whether
or not anything was aggregated.

Sums of microseconds times bytes go beyond 64 bits. So each amount is two columns, and both are
summed up.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    cast,
    delete,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    union,
)

from carrel_scheduler.ledger.accounting.spans import spans
from carrel_scheduler.ledger.accounting.usage import Allocated, Total, totals_of
from carrel_scheduler.ledger.columns.codec import insert_tuples
from carrel_scheduler.ledger.columns.tables import transitions, workload_totals
from carrel_scheduler.ledger.rows.history import SPAN_COLUMNS

AMOUNTS: Final = ("gpu", "borrowed", "cpu", "memory")
"""The fields of ``Allocated`` that take two columns."""
LOW_BITS: Final = 32
MOST_DEPARTMENTS: Final = 64
"""The number of departments from which the database groups by project: each is a condition."""
LONG_SECONDS: Final = 60 * 86_400.0
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "department": ("project",),
    "project": ("project",),
    "user": ("user",),
    "workload": ("project", "workload"),
    "kind": ("kind",),
    "gpu-type": ("gpu_type",),
    "node-group": ("node_group",),
}
_MARKS: Final = {"gpu-type": "of_gpu_type", "node-group": "of_node_group"}
"""The marks of rows in which a workload counts as one; ``of_workload`` for other groupings."""
_t = workload_totals.c


def aggregate(connection: Connection, most: int) -> int:
    """Aggregate at most this many transitions; returns how many there were."""
    known = _aggregated_through(connection)
    query = select(transitions.c.id, transitions.c.workload_uid).where(transitions.c.id > known)
    fresh = connection.execute(query.order_by(transitions.c.id).limit(most)).all()
    if not fresh:
        return 0
    newest, uids = fresh[-1].id, sorted({row.workload_uid for row in fresh})
    columns = [transitions.c.id, *SPAN_COLUMNS]
    whole = (
        select(*columns)
        .where(transitions.c.workload_uid.in_(uids), transitions.c.id <= newest)
        .order_by(transitions.c.id)
    )
    rows: dict[str, list[Any]] = {}
    for row in connection.execute(whole):
        rows.setdefault(row.workload_uid, []).append(row)
    connection.execute(delete(workload_totals).where(_t.workload_uid.in_(uids)))
    names = tuple(column.name for column in workload_totals.columns)
    made = [row for found in rows.values() for row in _rows(found)]
    insert_tuples(connection, workload_totals, names, made)
    return len(fresh)


def _aggregated_through(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(_t.last_id), 0))).scalar_one())


def _rows(rows: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of a workload from all of its transitions, in order of id."""
    last, found = rows[-1], [*spans(rows)]
    over, times = not found[-1].counts, [row.at for row in rows]
    ended_at = max(times) if over else None
    named = (last.workload, last.project, last.user, last.kind)
    types: set[str] = set()
    groups: set[str] = set()
    for number, (place, total) in enumerate(totals_of(found if over else ())):
        gpu_type, node_group = place
        counts = bool(total.workloads)
        marks = (not number, counts and gpu_type not in types, counts and node_group not in groups)
        types.add(gpu_type)
        groups.add(node_group)
        sums = (getattr(total.allocated, name) for name in AMOUNTS)
        halves = [half for one in sums for half in divmod(one, 1 << LOW_BITS)]
        known = (min(times), ended_at, last.id, total.preemptions, total.allocated.waiting)
        yield (last.workload_uid, *place, *named, *map(int, marks), *known, *halves)


def _ended_at(since: float, until: float) -> ColumnElement[float]:
    """The column of the end of work: for a long period as a term that no index is used for.

    SQLite would look up most of the rows one by one in the order of the index, which takes several
    times as long as reading all of them.
    """
    return _t.ended_at + 0.0 if until - since > LONG_SECONDS else _t.ended_at


class PeriodPart(NamedTuple):
    """The rows that lie as a whole in one part of a period; ``number`` is that part."""

    condition: ColumnElement[bool]
    number: ColumnElement[int]


def windows(ends: Sequence[tuple[float, float]]) -> list[PeriodPart]:
    """A part of the result for each window [begin, end), by its number."""
    return [
        PeriodPart(and_(_t.began_at >= begin, _ended_at(begin, end) < end), literal(number))
        for number, (begin, end) in enumerate(ends)
    ]


def equal_parts(
    connection: Connection, since: float, until: float, buckets: int
) -> list[PeriodPart]:
    """The equal parts of [since, until), by their numbers."""
    width = (until - since) / buckets

    def number(at: ColumnElement[Any]) -> ColumnElement[int]:
        exact = (at - since) * (1 / width)
        down = func.floor(exact) if connection.dialect.name == "postgresql" else exact
        return cast(down, BigInteger)  # SQLite cuts off what is behind the point

    within = and_(_t.began_at >= since, _ended_at(since, until) < until)
    return [
        PeriodPart(and_(within, number(_t.began_at) == number(_t.ended_at)), number(_t.began_at))
    ]


class AggregatedUsage:
    """The aggregated rows that lie wholly in a period.

    Args:
        connection: one snapshot.
        since, until: the period.
        projects: of these only; ``None``: of all.
        parts: of the period; rows count for that in which they lie as a whole.
        departments: those of projects, by which a grouping by department is made.
    """

    def __init__(
        self,
        connection: Connection,
        since: float,
        until: float,
        projects: Sequence[str] | None,
        parts: Sequence[PeriodPart],
        departments: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._connection, self._parts, self._departments = connection, parts, departments
        self._since, self._until, self._projects = since, until, projects
        newer = transitions.c.id > _aggregated_through(connection)
        self._not_aggregated = select(transitions.c.workload_uid).where(newer)
        self._all_aggregated = connection.execute(self._not_aggregated.limit(1)).first() is None

    def sums(self, by: str) -> Iterator[tuple[int, Total]]:
        """The number of the part, and what the workloads of a line held in it."""
        for part in self._parts:
            halves = [f"{name}_{half}" for name in AMOUNTS for half in ("high", "low")]
            columns = (_MARKS.get(by, "of_workload"), "preemptions", "waiting", *halves)
            for of_part, key, (workloads, preemptions, waiting, *found) in self._summed(
                part, by, columns
            ):
                sums = map(_joined, found[::2], found[1::2])
                allocated = Allocated(waiting=waiting, **dict(zip(AMOUNTS, sums, strict=True)))
                total = Total(workloads=workloads, preemptions=preemptions, allocated=allocated)
                yield of_part, _named(total, key)

    def gpu_sums(self, by: str, first: Sequence[str] | None = None) -> Iterator[tuple[int, Total]]:
        """The same with nothing but GPUs.

        ``first``: values of the first column that is grouped by (projects for departments and
        workloads) of which sums are wanted; ``None``: all.
        """
        for part in self._parts:
            yield from self._gpu_sums_in(part, by, first)

    def gpu_sums_of_all_parts(self, by: str) -> Iterator[Total]:
        """GPU time of the workloads of a line in all parts together."""
        condition = or_(false(), *(part.condition for part in self._parts))
        for _, total in self._gpu_sums_in(PeriodPart(condition, literal(0)), by, None):
            yield total

    def _gpu_sums_in(
        self, part: PeriodPart, by: str, first: Sequence[str] | None
    ) -> Iterator[tuple[int, Total]]:
        for of_part, key, (high, low) in self._summed(part, by, ("gpu_high", "gpu_low"), first):
            yield of_part, _named(Total(allocated=Allocated(gpu=_joined(high, low))), key)

    def _summed(
        self, part: PeriodPart, by: str, names: Sequence[str], first: Sequence[str] | None = None
    ) -> Iterator[tuple[int, Mapping[str, str], list[int]]]:
        """The number of the part, the values of the columns that are grouped by, and the sums."""
        groups, number = _GROUPS[by], part.number.label("part")
        columns = [_t[one] for one in groups]
        summed = [func.sum(_t[name]).label(name) for name in names]
        query = select(number, *columns, *summed).where(part.condition).group_by(number, *columns)
        if not self._all_aggregated:
            query = query.where(_t.workload_uid.not_in(self._not_aggregated))
        if self._projects is not None:
            query = query.where(_t.project.in_(self._projects))
        if first is not None:
            query = query.where(_t[groups[0]].in_(first))
        if by == "department":
            query = self._by_department(query, names)
        for of_part, *rest in self._connection.execute(query).all():
            key = dict(zip(groups, rest, strict=False))
            yield of_part, key, [int(one) for one in rest[len(groups) :]]

    def _by_department(self, by_project: Select[Any], names: Sequence[str]) -> Select[Any]:
        """Sums by a project that stands for its department, where there are few departments.

        Made of the sums by project, since every department is one more condition: asked of each sum
        they cost little, asked of each row as much as reading it.
        """
        members: dict[str, list[str]] = {}
        for project in sorted(self._departments):
            members.setdefault(self._departments[project], []).append(project)
        members.pop("", None)
        if len(members) > MOST_DEPARTMENTS:
            return by_project
        found = by_project.subquery()
        whens = [(found.c.project.in_(some), literal(some[0])) for some in members.values()]
        nobody = literal("")
        column = (case(*whens, else_=nobody) if whens else nobody).label("stands_for")
        summed = [func.sum(found.c[name]) for name in names]
        return select(found.c.part, column, *summed).group_by(found.c.part, column)

    def elsewhere(self) -> Select[Any]:
        """The uids of workloads whose spans have to be read one by one."""
        whole = or_(false(), *(part.condition for part in self._parts))
        ended_at = _ended_at(self._since, self._until)
        reaches_out = and_(ended_at >= self._since, not_(whole))
        touching = select(_t.workload_uid).where(
            _t.began_at < self._until, or_(_t.ended_at.is_(None), reaches_out)
        )
        both = union(touching, self._not_aggregated).subquery()
        return select(both.c.workload_uid)


def _joined(high: int, low: int) -> int:
    return (high << LOW_BITS) + low


def _named(total: Total, key: Mapping[str, str]) -> Total:
    for name, value in key.items():
        setattr(total, name, value)
    return total
