"""The audit log in SQL: appended inside a writing transaction, whose lock makes it one sequence.

The text of an entry is what is hashed; the other columns only find it, and verification compares
them with the text, too.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, Select, delete, func, insert, or_, select, update

from carrel_scheduler.ledger.audit.contract import AuditFilter
from carrel_scheduler.ledger.columns.codec import insert_tuples
from carrel_scheduler.ledger.columns.tables import audit_entries, audit_head
from carrel_schema.governance.audit import AuditEntry, AuditHead, head_text, linked

Sign = Callable[[bytes], str]
_HEAD: Final = select(
    audit_head.c.seq,
    audit_head.c.hash,
    audit_head.c.anchor_seq,
    audit_head.c.anchor_hash,
    audit_head.c.signature,
)
_SAVE_HEAD: Final = update(audit_head)
_NEW_HEAD: Final = insert(audit_head)
_FOUND_BY: Final = ("at", "user", "on_behalf_of", "verb", "kind", "scope", "name", "outcome")
_COLUMNS: Final = ("seq", "hash", "entry", *_FOUND_BY)
_found_by: Final = attrgetter(*_FOUND_BY)
_DECODER: Final = msgspec.json.Decoder(AuditEntry)


def read_head(connection: Connection) -> AuditHead:
    """Read both ends of the chain; those of an empty chain if nothing was ever written."""
    row = connection.execute(_HEAD).mappings().one_or_none()
    return AuditHead() if row is None else AuditHead(**row)


def append(connection: Connection, entries: Sequence[AuditEntry], sign: Sign) -> None:
    """Append entries in order. The caller holds the lock of writers."""
    head = read_head(connection)
    seq, last = head.seq, head.hash
    rows = []
    for entry in entries:
        seq += 1
        placed, text = linked(entry, seq, last)
        last = placed.hash
        rows.append((seq, last, text.decode(), *_found_by(placed)))
    insert_tuples(connection, audit_entries, _COLUMNS, rows)
    write_head(connection, msgspec.structs.replace(head, seq=seq, hash=last), sign)


def write_head(connection: Connection, head: AuditHead, sign: Sign) -> None:
    """Sign and store both ends."""
    signed = msgspec.structs.replace(head, signature=sign(head_text(head)))
    values = {name: getattr(signed, name) for name in AuditHead.__struct_fields__}
    if connection.execute(_SAVE_HEAD, values).rowcount == 0:
        connection.execute(_NEW_HEAD, {"id": 1, **values})


def read(
    connection: Connection,
    where: AuditFilter,
    before: int | None,
    after: int | None,
    limit: int,
) -> list[AuditEntry]:
    """See ``Audit.read``."""
    query = _matching(select(audit_entries), where)
    if after is not None:
        query = query.where(audit_entries.c.seq > after).order_by(audit_entries.c.seq)
    else:
        if before is not None:
            query = query.where(audit_entries.c.seq < before)
        query = query.order_by(audit_entries.c.seq.desc())
    return [_entry(row) for row in connection.execute(query.limit(limit))]


def _matching(query: Select[Any], where: AuditFilter) -> Select[Any]:
    columns = audit_entries.c
    for name in ("kind", "verb", "name", "outcome"):
        if wanted := getattr(where, name):
            query = query.where(columns[name] == wanted)
    if where.user:
        query = query.where(or_(columns.user == where.user, columns.on_behalf_of == where.user))
    if where.scopes is not None:
        query = query.where(columns.scope.in_(where.scopes))
    if where.since is not None:
        query = query.where(columns.at >= where.since)
    if where.until is not None:
        query = query.where(columns.at < where.until)
    return query


def _entry(row: Row[Any]) -> AuditEntry:
    return msgspec.structs.replace(_DECODER.decode(row.entry), hash=row.hash)


def read_checked(
    connection: Connection, after: int, limit: int
) -> tuple[list[AuditEntry], tuple[int, str] | None]:
    """Entries in the order of the chain, and the first row that cannot be what was written."""
    query = select(audit_entries).where(audit_entries.c.seq > after)
    found: list[AuditEntry] = []
    for row in connection.execute(query.order_by(audit_entries.c.seq).limit(limit)):
        try:
            entry = _entry(row)
        except msgspec.MsgspecError:
            return found, (row.seq, f"entry {row.seq} was changed")
        if any(getattr(entry, name) != getattr(row, name) for name in ("seq", *_FOUND_BY)):
            return found, (row.seq, f"a column of entry {row.seq} was changed")
        found.append(entry)
    return found, None


def prune(connection: Connection, before: float, note: AuditEntry, sign: Sign) -> int:
    """See ``Audit.prune``: the entries before the first that is young enough."""
    columns = audit_entries.c
    head = read_head(connection)
    kept = connection.execute(select(func.min(columns.seq)).where(columns.at >= before)).scalar()
    last = head.seq if kept is None else int(kept) - 1
    if last <= head.anchor_seq:
        return 0
    anchor = connection.execute(select(columns.hash).where(columns.seq == last)).scalar_one()
    connection.execute(delete(audit_entries).where(columns.seq <= last))
    moved = msgspec.structs.replace(head, anchor_seq=last, anchor_hash=str(anchor))
    write_head(connection, moved, sign)
    after = {"removed_through": last, "anchor": str(anchor)}
    append(connection, [msgspec.structs.replace(note, after=after)], sign)
    return last - head.anchor_seq
