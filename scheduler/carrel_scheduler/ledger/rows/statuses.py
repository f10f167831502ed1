"""Statuses in SQL: what the scheduler writes most, so it is written without being read first.

What a version of an object is called and labelled never changes, so identities that this process
wrote or read lately need not be read again. Whether that version is still the present one is the
condition of the write itself; only when it is not, the rows are read to say what is wrong.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from sqlalchemy import Connection, bindparam, select, update

from carrel_scheduler.ledger.rows.bulk import pieces, placeholders
from carrel_scheduler.ledger.rows.codec import EncodedStatus
from carrel_scheduler.ledger.rows.objects import change_columns, check_at, meta_of, replaced
from carrel_scheduler.ledger.rows.tables import objects
from carrel_scheduler.ledger.store import ChangeType, Conflict, NotFound
from carrel_scheduler.ledger.transaction import Transaction
from carrel_schema.objects import Meta, ObjectT

_AT_ONCE: Final = 500
_STORED: Final = tuple(name for name in Meta.__struct_fields__ if name != "deleting")
_METAS: Final = select(*(objects.c[name] for name in _STORED)).where(
    objects.c.kind == bindparam("kind"), objects.c.uid.in_(bindparam("uids", expanding=True))
)
_UPDATE: Final = """
UPDATE objects
SET resource_version = new.column3, status = new.column4, phase = new.column5
FROM (VALUES (?)) AS new
WHERE objects.uid = new.column1 AND objects.resource_version = new.column2 AND objects.kind = ?
"""
_WRITE: Final = (
    update(objects)
    .where(objects.c.uid == bindparam("which"))
    .values(
        status=bindparam("status"),
        phase=bindparam("phase"),
        resource_version=bindparam("resource_version"),
    )
)


def write_statuses(
    transaction: Transaction, kind: type[ObjectT], wanted: Sequence[EncodedStatus]
) -> list[Meta]:
    """Write statuses of objects of one kind; raises ``Conflict``, ``NotFound``."""
    old = _identities(transaction, kind, wanted)
    made: dict[str, Meta] = {}
    for one in wanted:
        if one.uid in made:
            raise Conflict(f"{kind.__name__} {one.uid} is written twice at once")
        made[one.uid] = replaced(old[one.uid], resource_version=transaction.next_version())
    _write(transaction.connection, kind, wanted, made)
    transaction.remember(made.values())
    for one in wanted:
        columns = change_columns(kind, ChangeType.MODIFIED, made[one.uid], one.status)
        transaction.add_change(columns)
    return list(made.values())


def check_current(
    connection: Connection, kind: type[ObjectT], versions: Sequence[tuple[str, int]]
) -> dict[str, Meta]:
    """Identities by uid, all of them at the versions given; raises ``Conflict``, ``NotFound``."""
    found: dict[str, Meta] = {}
    for start in range(0, len(versions), _AT_ONCE):
        uids = [uid for uid, _ in versions[start : start + _AT_ONCE]]
        for row in connection.execute(_METAS, {"kind": kind.__name__, "uids": uids}):
            found[row.uid] = meta_of(row)
    for uid, version in versions:
        if uid not in found:
            raise NotFound(f"no {kind.__name__} with uid {uid!r}")
        check_at(kind, found[uid], version)
    return found


def _identities(
    transaction: Transaction, kind: type[ObjectT], wanted: Sequence[EncodedStatus]
) -> Mapping[str, Meta]:
    """The identities that are cached, and the others from the database."""
    known: dict[str, Meta] = {}
    unknown: list[tuple[str, int]] = []
    by_rows = transaction.connection.dialect.name == "sqlite"
    for one in wanted:
        meta = transaction.remembered(one.uid, one.resource_version) if by_rows else None
        if meta is None:
            unknown.append((one.uid, one.resource_version))
        else:
            known[one.uid] = meta
    return known | check_current(transaction.connection, kind, unknown)


def _write(
    connection: Connection,
    kind: type[ObjectT],
    wanted: Sequence[EncodedStatus],
    made: Mapping[str, Meta],
) -> None:
    if connection.dialect.name != "sqlite":
        _write_one_by_one(connection, wanted, made)
        return
    written = 0
    for part in pieces(wanted):
        values: list[str | int | None] = []
        for one in part:
            version = made[one.uid].resource_version
            values += (one.uid, one.resource_version, version, one.status, one.phase)
        written += connection.exec_driver_sql(_update(len(part)), (*values, kind.__name__)).rowcount
    if written != len(wanted):
        check_current(connection, kind, [(one.uid, one.resource_version) for one in wanted])
        raise Conflict(f"only {written} of {len(wanted)} {kind.__name__}s could be written")


def _write_one_by_one(
    connection: Connection, wanted: Sequence[EncodedStatus], made: Mapping[str, Meta]
) -> None:
    """Write row by row, for databases whose rows were just compared and stay locked."""
    rows = [
        {
            "which": one.uid,
            "status": one.status,
            "phase": one.phase,
            "resource_version": made[one.uid].resource_version,
        }
        for one in wanted
    ]
    if rows:
        connection.execute(_WRITE, rows)


@cache
def _update(rows: int) -> str:
    return _UPDATE.replace("(?)", placeholders(5, rows))
