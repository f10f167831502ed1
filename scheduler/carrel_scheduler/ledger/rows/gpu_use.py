"""Measured use of GPUs in SQL: pieces of a few minutes of each workload."""

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, select

from carrel_scheduler.ledger.columns.codec import insert_tuples
from carrel_scheduler.ledger.columns.tables import gpu_use
from carrel_scheduler.ledger.records import GpuUse

_FIELDS: Final = GpuUse.__struct_fields__


def add(connection: Connection, pieces: Sequence[GpuUse]) -> None:
    """Append pieces."""
    rows = [tuple(getattr(piece, name) for name in _FIELDS) for piece in pieces]
    insert_tuples(connection, gpu_use, _FIELDS, rows)


def read(
    connection: Connection, since: float, until: float, projects: Sequence[str] | None
) -> Iterator[GpuUse]:
    """Read all measured pieces that overlap [since, until)."""
    columns = [gpu_use.c[name] for name in _FIELDS]
    query = select(*columns).where(gpu_use.c.until > since, gpu_use.c.since < until)
    if projects is not None:
        query = query.where(gpu_use.c.project.in_(projects))
    for row in connection.execute(query).mappings():
        yield GpuUse(**row)
