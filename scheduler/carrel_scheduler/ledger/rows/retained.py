"""Amounts of stored records in SQL, and the removal of old decisions.

Sizes are those of the content: the length of texts, and 8 bytes for each number.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Table, Text, bindparam, case, delete, func, literal, select

from carrel_scheduler.ledger.columns import tables
from carrel_scheduler.ledger.records import StoredAmount
from carrel_schema.governance.retention import RetainedKind
from carrel_schema.samples import STEPS

NUMBER_BYTES: Final = 8
_TABLES: Final[Mapping[RetainedKind, Table]] = {
    "audit-entries": tables.audit_entries,
    "decisions": tables.decisions,
    "samples": tables.samples,
    "hourly-samples": tables.samples,
    "transitions": tables.transitions,
    "gpu-use": tables.gpu_use,
    "reported-values": tables.metrics,
}
_STEPS: Final[Mapping[RetainedKind, int]] = {"samples": STEPS[0], "hourly-samples": STEPS[1]}
_OLDEST: Final = (
    select(tables.decisions.c.id, tables.decisions.c.at)
    .order_by(tables.decisions.c.id)
    .limit(bindparam("most"))
)


def amount(connection: Connection, kind: RetainedKind, before: float) -> StoredAmount:
    """The stored amount of a kind, and the part that is older."""
    table = _TABLES[kind]
    at: Any = table.c.until if kind == "gpu-use" else table.c.at
    size = _size(table)
    old = at < before
    query = select(
        func.count(),
        func.coalesce(func.sum(size), 0),
        func.min(at),
        func.coalesce(func.sum(case((old, 1), else_=0)), 0),
        func.coalesce(func.sum(case((old, size), else_=0)), 0),
    ).select_from(table)
    if kind in _STEPS:
        query = query.where(table.c.step == _STEPS[kind])
    rows, content, oldest, old_rows, old_content = connection.execute(query).one()
    return StoredAmount(
        rows=int(rows),
        size_bytes=int(content),
        oldest_at=None if oldest is None else float(oldest),
        old_rows=int(old_rows),
        old_bytes=int(old_content),
    )


def _size(table: Table) -> Any:
    texts = [column for column in table.columns if isinstance(column.type, Text)]
    size: Any = literal(NUMBER_BYTES * (len(table.columns) - len(texts)))
    for column in texts:
        size = size + func.coalesce(func.length(column), 0)
    return size


def remove_decisions(connection: Connection, before: float, most: int) -> int:
    """Remove the oldest decisions that are older, at most so many; returns how many."""
    ids = [row.id for row in connection.execute(_OLDEST, {"most": most}) if row.at < before]
    if ids:
        connection.execute(delete(tables.decisions).where(tables.decisions.c.id.in_(ids)))
    return len(ids)
