"""Transitions and decisions in SQL, and the spans of time that use is computed from."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, func, or_, select

from carrel_scheduler.ledger.accounting.spans import SPAN_FIELDS, WAITING, UsageSpan
from carrel_scheduler.ledger.columns import codec
from carrel_scheduler.ledger.columns.codec import insert_tuples, places_from_json
from carrel_scheduler.ledger.columns.tables import decisions, transitions
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.records import Decision, Transition

# Without the id, which is the database's to give.
_TRANSITION: Final = Transition.__struct_fields__[1:]
_DECISION: Final = Decision.__struct_fields__[1:]


def add_transitions(connection: Connection, rows: Sequence[Transition]) -> None:
    """Append rows in their order."""
    insert_tuples(connection, transitions, _TRANSITION, [codec.row_values(row) for row in rows])


def add_decisions(connection: Connection, rows: Sequence[Decision]) -> None:
    """Append rows in their order."""
    insert_tuples(connection, decisions, _DECISION, [codec.row_values(row) for row in rows])


def read_transitions(
    connection: Connection,
    *,
    workload_uid: str | None,
    projects: Sequence[str] | None,
    since: float | None,
    until: float | None,
    limit: int,
) -> list[Transition]:
    """The newest ``limit`` rows with ``since <= at < until``, in order of id."""
    query = select(transitions)
    if workload_uid is not None:
        query = query.where(transitions.c.workload_uid == workload_uid)
    if projects is not None:
        query = query.where(transitions.c.project.in_(projects))
    if since is not None:
        query = query.where(transitions.c.at >= since)
    if until is not None:
        query = query.where(transitions.c.at < until)
    rows = _newest(connection, query, transitions.c.id, limit)
    return [codec.transition(row) for row in rows]


def read_decisions(
    connection: Connection, *, workload_uid: str | None, limit: int
) -> list[Decision]:
    """The newest ``limit`` rows, in order of id."""
    query = select(decisions)
    if workload_uid is not None:
        query = query.where(decisions.c.workload_uid == workload_uid)
    return [codec.decision(row) for row in _newest(connection, query, decisions.c.id, limit)]


def _newest(connection: Connection, query: Select[Any], row_id: Any, limit: int) -> list[Any]:
    if limit < 1:
        raise InvalidArgument("limit", limit, "at least 1")
    found = connection.execute(query.order_by(row_id.desc()).limit(limit)).mappings().all()
    return list(reversed(found))


ROWS_AT_ONCE: Final = 4096
"""Fetched together, which takes half as long as one by one."""
SPAN_COLUMNS: Final = [transitions.c[name] for name in SPAN_FIELDS]


def spans(
    connection: Connection,
    since: float,
    until: float,
    projects: Sequence[str] | None,
    workloads: Select[Any] | None = None,
) -> Iterator[UsageSpan]:
    """Read the spans that touch [since, until], from each row to the next of its workload.

    ``workloads`` selects the uids of those that are meant; ``None``: all.
    """
    ended_at = func.lead(transitions.c.at).over(
        partition_by=transitions.c.workload_uid, order_by=transitions.c.id
    )
    # All of history goes through this, so it reads one index and nothing else.
    rows = select(transitions.c.id, transitions.c.at, ended_at.label("ended_at"))
    if workloads is not None:
        rows = rows.where(transitions.c.workload_uid.in_(workloads))
    ends = rows.subquery()
    query = (
        select(*SPAN_COLUMNS, ends.c.ended_at)
        .join(ends, ends.c.id == transitions.c.id)
        .where(
            ends.c.at < until,
            or_(ends.c.ended_at.is_(None), ends.c.ended_at >= since),
            or_(ends.c.at >= since, _counts(transitions.c)),
        )
    )
    if projects is not None:
        query = query.where(transitions.c.project.in_(projects))
    for many in connection.execute(query).partitions(ROWS_AT_ONCE):
        for *fields, places, ended in many:
            yield UsageSpan(*(*fields, places_from_json(places), ended))


def _counts(columns: Any) -> ColumnElement[bool]:
    """``UsageSpan.counts`` in SQL, to skip the many spans of ended work."""
    return or_(
        columns.gpu_milli > 0,
        columns.cpu_milli > 0,
        columns.memory_bytes > 0,
        columns.to_phase == WAITING,
    )
