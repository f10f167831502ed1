"""Models and kept checkpoints in SQL. A removed one keeps its row: no version is given twice."""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, func, insert, select, update

from carrel_scheduler.ledger.columns.tables import copies
from carrel_scheduler.ledger.records import CopyKind, CopyRecord
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound
from carrel_schema.files import StoredCopy

_CONTENT: Final = msgspec.json.Decoder(StoredCopy)
_LAST: Final = select(func.max(copies.c.version)).where(
    copies.c.kind == bindparam("kind"),
    copies.c.project == bindparam("project"),
    copies.c.name == bindparam("name"),
)
_REMOVE: Final = (
    update(copies).where(copies.c.uid == bindparam("which"), ~copies.c.removed).values(removed=True)
)


def add(connection: Connection, kind: CopyKind, uid: str, copy: StoredCopy) -> CopyRecord:
    """Write a copy as the next version of its name, a kept checkpoint as the only one.

    Raises ``ObjectExists`` for a kept checkpoint whose name is taken.
    """
    key = {"kind": kind, "project": copy.project, "name": copy.name}
    last = connection.execute(_LAST, key).scalar_one() or 0
    if last and kind == "checkpoint":
        raise ObjectExists(f"a checkpoint named {copy.name} was kept in {copy.project} before")
    new = msgspec.structs.replace(copy, version=last + 1)
    content = msgspec.json.encode(new).decode()
    row = {**key, "uid": uid, "version": new.version, "content": content, "removed": False}
    connection.execute(insert(copies), row)
    return CopyRecord(uid=uid, kind=kind, copy=new)


def read(
    connection: Connection, kind: CopyKind | None, project: str | None, name: str | None
) -> Sequence[CopyRecord]:
    """The existing copies, by name and version."""
    query = select(copies.c.uid, copies.c.kind, copies.c.content).where(~copies.c.removed)
    for column, value in (("kind", kind), ("project", project), ("name", name)):
        if value is not None:
            query = query.where(copies.c[column] == value)
    rows = connection.execute(query.order_by(copies.c.project, copies.c.name, copies.c.version))
    return [CopyRecord(uid=uid, kind=kind, copy=_CONTENT.decode(text)) for uid, kind, text in rows]


def remove(connection: Connection, uid: str) -> None:
    """Mark a copy as removed. Raises ``ObjectNotFound``."""
    if not connection.execute(_REMOVE, {"which": uid}).rowcount:
        raise ObjectNotFound(f"no copy with uid {uid!r}")
