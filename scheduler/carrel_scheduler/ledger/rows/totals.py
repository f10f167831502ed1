"""What each finished workload held in all, so that long periods are summed up by the database.

``aggregate`` makes a row for each workload from its transitions, some time after they were written:
it goes through them in order of id and makes the rows of all workloads that it meets anew. What is
asked for a period is then the sum of the rows that lie in it as a whole (``Part``), and of the
spans of all other workloads (``elsewhere``): those that reach beyond its ends, those that are not
over, and those with transitions that were not aggregated yet. So answers are the same, whether or
not anything was aggregated.

Sums of microseconds times bytes go beyond 64 bits. So each amount is two columns, and both are
summed up.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
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

from carrel_scheduler.ledger.rows.bulk import insert_tuples
from carrel_scheduler.ledger.rows.history import SPAN_COLUMNS
from carrel_scheduler.ledger.rows.tables import transitions, workload_totals
from carrel_scheduler.ledger.usage import Allocated, Total, spans, total_of

AMOUNTS: Final = ("gpu", "borrowed", "cpu", "memory")
"""Of ``Allocated``, those that take two columns."""
LOW_BITS: Final = 32
LONG_SECONDS: Final = 60 * 86_400.0
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "department": ("project",),
    "project": ("project",),
    "user": ("user",),
    "workload": ("project", "workload"),
    "kind": ("kind",),
}
_t = workload_totals.c


def aggregate(connection: Connection, most: int) -> int:
    """Aggregate at most so many further transitions; returns how many there were."""
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
    insert_tuples(connection, workload_totals, names, [_row(found) for found in rows.values()])
    return len(fresh)


def _aggregated_through(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(_t.last_id), 0))).scalar_one())


def _row(rows: Sequence[Any]) -> tuple[Any, ...]:
    """The row of a workload from all of its transitions, in order of id."""
    last, over = rows[-1], not any(one.counts for one in [*spans(rows)][-1:])
    total = total_of(spans(rows)) if over else Total()
    times = [row.at for row in rows]
    parts = [
        half for name in AMOUNTS for half in divmod(getattr(total.allocated, name), 1 << LOW_BITS)
    ]
    named = (last.workload_uid, last.workload, last.project, last.user, last.kind)
    ended_at = max(times) if over else None
    known = (min(times), ended_at, last.id, total.preemptions, total.allocated.waiting)
    return (*named, *known, *parts)


def _ended_at(since: float, until: float) -> ColumnElement[float]:
    """When work ended: for a long period as a term that no index is used for.

    SQLite would look up most of the rows one by one in the order of the index, which takes several
    times as long as reading all of them.
    """
    return _t.ended_at + 0.0 if until - since > LONG_SECONDS else _t.ended_at


class Part(NamedTuple):
    """Which rows lie as a whole in one part of a period; ``number`` says which part that is."""

    condition: ColumnElement[bool]
    number: ColumnElement[int]


def windows(ends: Sequence[tuple[float, float]]) -> list[Part]:
    """A part for each window [begin, end), by its number."""
    return [
        Part(and_(_t.began_at >= begin, _ended_at(begin, end) < end), literal(number))
        for number, (begin, end) in enumerate(ends)
    ]


def equal_parts(connection: Connection, since: float, until: float, buckets: int) -> list[Part]:
    """The equal parts of [since, until), by their numbers."""
    width = (until - since) / buckets

    def number(at: ColumnElement[Any]) -> ColumnElement[int]:
        exact = (at - since) * (1 / width)
        down = func.floor(exact) if connection.dialect.name == "postgresql" else exact
        return cast(down, BigInteger)  # SQLite cuts off what is behind the point

    within = and_(_t.began_at >= since, _ended_at(since, until) < until)
    return [Part(and_(within, number(_t.began_at) == number(_t.ended_at)), number(_t.began_at))]


class AggregatedUsage:
    """The aggregated rows that count for a period as a whole.

    Args:
        connection: one snapshot.
        since, until: the period.
        projects: of these only; ``None``: of all.
        parts: of the period; rows count for that in which they lie as a whole.
    """

    def __init__(
        self,
        connection: Connection,
        since: float,
        until: float,
        projects: Sequence[str] | None,
        parts: Sequence[Part],
    ) -> None:
        self._connection, self._parts = connection, parts
        self._since, self._until, self._projects = since, until, projects
        newer = transitions.c.id > _aggregated_through(connection)
        self._not_aggregated = select(transitions.c.workload_uid).where(newer)
        self._all_aggregated = connection.execute(self._not_aggregated.limit(1)).first() is None

    def sums(self, by: str, amounts: Sequence[str] = AMOUNTS) -> Iterator[tuple[int, Total]]:
        """The number of the part, and what the workloads of a line held in it.

        ``amounts`` are those of ``AMOUNTS`` that are wanted.
        """
        for part in self._parts:
            yield from self._sums_in(part, by, amounts)

    def _sums_in(self, part: Part, by: str, amounts: Sequence[str]) -> Iterator[tuple[int, Total]]:
        groups = _GROUPS[by]
        columns, number = [_t[name] for name in groups], part.number.label("part")
        halves = [f"{name}_{half}" for name in amounts for half in ("high", "low")]
        summed = [func.sum(_t[name]) for name in ("preemptions", "waiting", *halves)]
        query = (
            select(number, func.count(), *columns, *summed)
            .where(part.condition)
            .group_by(number, *columns)
        )
        if not self._all_aggregated:
            query = query.where(_t.workload_uid.not_in(self._not_aggregated))
        if self._projects is not None:
            query = query.where(_t.project.in_(self._projects))
        for of_part, workloads, *rest in self._connection.execute(query):
            preemptions, waiting, *found = map(int, rest[len(groups) :])
            pairs = zip(found[::2], found[1::2], strict=True)
            sums = [(high << LOW_BITS) + low for high, low in pairs]
            allocated = Allocated(waiting=waiting, **dict(zip(amounts, sums, strict=True)))
            total = Total(workloads=workloads, preemptions=preemptions, allocated=allocated)
            for name, value in zip(groups, rest, strict=False):
                setattr(total, name, value)
            yield of_part, total

    def elsewhere(self) -> Select[Any]:
        """The uids of workloads whose spans have to be read."""
        whole = or_(false(), *(part.condition for part in self._parts))
        ended_at = _ended_at(self._since, self._until)
        reaches_out = and_(ended_at >= self._since, not_(whole))
        touching = select(_t.workload_uid).where(
            _t.began_at < self._until, or_(_t.ended_at.is_(None), reaches_out)
        )
        both = union(touching, self._not_aggregated).subquery()
        return select(both.c.workload_uid)
