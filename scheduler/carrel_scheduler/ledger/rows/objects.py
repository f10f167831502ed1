"""Objects in SQL: what a call reads and writes inside the transaction that it was given.

Writers hold the store's lock, so a version that was compared stays compared. Every change gets a
row for watches with the whole state after it; the specification in it is a reference.

Statuses are what the scheduler writes most, so they are written without being read first. What a
version of an object is called and labelled never changes, so identities that this process wrote or
read lately need not be read again. Whether that version is still the present one is the condition
of the write itself; only when it is not, the rows are read to say what is wrong.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, Generic, TypeVar

import msgspec
from sqlalchemy import (
    Connection,
    Row,
    Select,
    bindparam,
    delete,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from carrel_scheduler.ledger.columns.codec import (
    Encoded,
    EncodedStatus,
    insert_many,
    labels_from_json,
    pieces,
    placeholders,
    to_json,
)
from carrel_scheduler.ledger.columns.tables import labels, objects, specs
from carrel_scheduler.ledger.group_commit import Transaction
from carrel_scheduler.ledger.store import ChangeType, ObjectExists, ObjectNotFound, VersionConflict
from carrel_scheduler.ledger.watches.watch import Fresh
from carrel_schema.objects import Meta, Object, ObjectT

StructT = TypeVar("StructT", bound=msgspec.Struct)


class NameOwner(msgspec.Struct, Generic[ObjectT], frozen=True):
    """The owner of a name after ``create_many``; ``found`` is the earlier owner, if any."""

    meta: Meta
    found: ObjectT | None


STORED: Final[Select[Any]] = select(objects, specs.c.spec).join(
    specs, (specs.c.uid == objects.c.uid) & (specs.c.generation == objects.c.generation)
)
# Well below the number of parameters that a statement may have.
_AT_ONCE: Final = 500
_BY_UID: Final = STORED.where(
    objects.c.kind == bindparam("kind"), objects.c.uid.in_(bindparam("uids", expanding=True))
)
_BY_NAME: Final = STORED.where(
    objects.c.kind == bindparam("kind"),
    objects.c.project == bindparam("project"),
    objects.c.name == bindparam("name"),
)
_BY_NAMES: Final = STORED.where(
    objects.c.kind == bindparam("kind"),
    tuple_(objects.c.project, objects.c.name).in_(bindparam("names", expanding=True)),
)
_NEW_SPEC: Final = insert(specs)
_NEW_LABELS: Final = insert(labels)
_WRITE: Final = update(objects).where(objects.c.uid == bindparam("which"))
_REMOVE: Final = delete(objects).where(objects.c.uid.in_(bindparam("uids", expanding=True)))
_REMOVE_LABELS: Final = delete(labels).where(labels.c.uid == bindparam("which"))
_META_COLUMNS: Final = tuple(name for name in Meta.__struct_fields__ if name != "deleting")
_METAS: Final = select(*(objects.c[name] for name in _META_COLUMNS)).where(
    objects.c.kind == bindparam("kind"), objects.c.uid.in_(bindparam("uids", expanding=True))
)
_WRITE_STATUSES: Final = """
UPDATE objects
SET resource_version = new.column3, status = new.column4, phase = new.column5
FROM (VALUES (?)) AS new
WHERE objects.uid = new.column1 AND objects.resource_version = new.column2 AND objects.kind = ?
"""
_WRITE_STATUS: Final = (
    update(objects)
    .where(objects.c.uid == bindparam("which"))
    .values(
        status=bindparam("status"),
        phase=bindparam("phase"),
        resource_version=bindparam("resource_version"),
    )
)


def stored(kind: type[ObjectT], row: Row[Any]) -> Encoded[ObjectT]:
    """A row of ``STORED``."""
    return Encoded(kind, meta_of(row), row.spec, row.status, row.phase, row.user, row.workload_kind)


def meta_of(row: Row[Any]) -> Meta:
    """The identity in a row of ``objects``."""
    return Meta(
        name=row.name,
        project=row.project,
        uid=row.uid,
        resource_version=row.resource_version,
        generation=row.generation,
        created_at=row.created_at,
        created_by=row.created_by,
        labels=labels_from_json(row.labels),
    )


def by_name(
    connection: Connection, kind: type[ObjectT], project: str, name: str
) -> Encoded[ObjectT]:
    """Read one; raises ``ObjectNotFound``."""
    key = {"kind": kind.__name__, "project": project, "name": name}
    row = connection.execute(_BY_NAME, key).one_or_none()
    if row is None:
        raise ObjectNotFound(f"no {kind.__name__} {full_name(project, name)}")
    return stored(kind, row)


def by_uid(connection: Connection, kind: type[ObjectT], uid: str) -> Encoded[ObjectT]:
    """Read one; raises ``ObjectNotFound``."""
    found = by_uids(connection, kind, [uid])
    if uid not in found:
        raise ObjectNotFound(f"no {kind.__name__} with uid {uid!r}")
    return found[uid]


def by_uids(
    connection: Connection, kind: type[ObjectT], uids: Sequence[str]
) -> dict[str, Encoded[ObjectT]]:
    """The existing objects with these uids."""
    found: dict[str, Encoded[ObjectT]] = {}
    for start in range(0, len(uids), _AT_ONCE):
        part = {"kind": kind.__name__, "uids": uids[start : start + _AT_ONCE]}
        for row in connection.execute(_BY_UID, part):
            found[row.uid] = stored(kind, row)
    return found


def full_name(project: str, name: str) -> str:
    """``project/name``, or the name of a project itself."""
    return f"{project}/{name}" if project else name


def create(transaction: Transaction, new: Encoded[ObjectT]) -> Encoded[ObjectT]:
    """Store a new object, whose uid and time of creation are set; raises ``ObjectExists``."""
    version = transaction.next_version()
    made = replaced(new, meta=replaced(new.meta, resource_version=version, generation=1))
    _insert(transaction, [made])
    return made


def create_many(
    transaction: Transaction, news: Sequence[Encoded[ObjectT]]
) -> list[NameOwner[ObjectT]]:
    """Create the objects of one kind whose names are free, in order.

    Raises ``ObjectExists`` for a uid that is taken: uids are not for callers to choose twice.
    """
    there = _by_names(transaction.connection, news)
    made: list[Encoded[ObjectT]] = []
    outcomes: list[NameOwner[ObjectT]] = []
    for new in news:
        name = (new.meta.project, new.meta.name)
        if name in there:
            outcomes.append(NameOwner(there[name].meta, there[name].decode()))
            continue
        version = transaction.next_version()
        there[name] = replaced(new, meta=replaced(new.meta, resource_version=version, generation=1))
        made.append(there[name])
        outcomes.append(NameOwner(there[name].meta, None))
    _insert(transaction, made)
    return outcomes


def _by_names(
    connection: Connection, news: Sequence[Encoded[ObjectT]]
) -> dict[tuple[str, str], Encoded[ObjectT]]:
    found: dict[tuple[str, str], Encoded[ObjectT]] = {}
    for start in range(0, len(news), _AT_ONCE):
        part = news[start : start + _AT_ONCE]
        names = [(new.meta.project, new.meta.name) for new in part]
        for row in connection.execute(_BY_NAMES, {"kind": part[0].kind.__name__, "names": names}):
            found[row.project, row.name] = stored(part[0].kind, row)
    return found


def _insert(transaction: Transaction, made: Sequence[Encoded[ObjectT]]) -> None:
    if not made:
        return
    connection = transaction.connection
    rows = [{**_columns(obj), "created_version": obj.meta.resource_version} for obj in made]
    specifications = [
        {"uid": obj.meta.uid, "generation": obj.meta.generation, "spec": obj.spec} for obj in made
    ]
    try:
        insert_many(connection, objects, rows)
        insert_many(connection, specs, specifications)
    except IntegrityError as error:
        one = full_name(made[0].meta.project, made[0].meta.name)
        what = one if len(made) == 1 else f"one of {len(made)} from {one} on"
        raise ObjectExists(
            f"{made[0].kind.__name__} {what}, or one with its uid, exists"
        ) from error
    transaction.remember([obj.meta for obj in made])
    for obj in made:
        _write_labels(connection, obj.meta)
        _announce(transaction, ChangeType.ADDED, obj)
        _record(transaction, "create", obj, after=obj.spec)


def _columns(obj: Encoded[ObjectT]) -> dict[str, Any]:
    columns = msgspec.structs.asdict(obj.meta)
    del columns["deleting"]  # what is deleted here is gone at once
    columns["labels"] = to_json(obj.meta.labels, "labels")
    return {
        **columns,
        "kind": obj.kind.__name__,
        "status": obj.status,
        "phase": obj.phase,
        "user": obj.user,
        "workload_kind": obj.workload_kind,
    }


def _write_labels(connection: Connection, meta: Meta) -> None:
    if meta.labels:
        rows = [{"uid": meta.uid, "key": key, "value": text} for key, text in meta.labels.items()]
        connection.execute(_NEW_LABELS, rows)


def _announce(transaction: Transaction, change: ChangeType, obj: Encoded[ObjectT]) -> None:
    transaction.add_change(
        change_columns(obj.kind, change, obj.meta, obj.status), Fresh(change, obj)
    )


def _record(
    transaction: Transaction,
    verb: str,
    obj: Encoded[Any],
    *,
    before: str | None = None,
    after: str | None = None,
) -> None:
    if not transaction.tells_of_objects:
        return
    transaction.record(
        verb,
        obj.kind.__name__,
        scope=scope_of(obj.kind, obj.meta),
        name=obj.meta.name,
        uid=obj.meta.uid,
        owner=obj.user or "",
        before=before,
        after=after,
    )


def scope_of(kind: type[Object], meta: Meta) -> str:
    """The scope to which an object belongs, or which it is, as text."""
    if meta.project:
        return f"project/{meta.project}"
    level = {"Project": "project", "Department": "department"}.get(kind.__name__)
    return f"{level}/{meta.name}" if level else "platform"


def change_columns(
    kind: type[ObjectT], change: ChangeType, meta: Meta, status: str
) -> dict[str, Any]:
    """A change as a row for watches."""
    return {
        "version": meta.resource_version,
        "kind": kind.__name__,
        "type": change.value,
        "uid": meta.uid,
        "generation": meta.generation,
        "meta": to_json(meta, "meta"),
        "status": status,
    }


def update_spec(transaction: Transaction, wanted: Encoded[ObjectT]) -> Encoded[ObjectT]:
    """Write specification and labels; raises ``VersionConflict``, ``ObjectNotFound``."""
    connection, uid = transaction.connection, wanted.meta.uid
    old = by_uid(connection, wanted.kind, uid)
    check_version(old, wanted.meta.resource_version)
    respecified = wanted.spec != old.spec
    made = replaced(
        wanted,
        status=old.status,
        phase=old.phase,
        meta=replaced(
            old.meta,
            labels=wanted.meta.labels,
            generation=old.meta.generation + respecified,
            resource_version=transaction.next_version(),
        ),
    )
    if respecified:
        row = {"uid": uid, "generation": made.meta.generation, "spec": made.spec}
        connection.execute(_NEW_SPEC, row)
    connection.execute(_WRITE, {**_columns(made), "which": uid})
    if made.meta.labels != old.meta.labels:
        connection.execute(_REMOVE_LABELS, {"which": uid})
        _write_labels(connection, made.meta)
    transaction.remember([made.meta])
    _announce(transaction, ChangeType.MODIFIED, made)
    if respecified or made.meta.labels != old.meta.labels:
        _record(transaction, "update", made, before=old.spec, after=made.spec)
    return made


def check_version(old: Encoded[ObjectT], version: int) -> None:
    """Raise ``VersionConflict`` unless the object has this version."""
    check_at(old.kind, old.meta, version)


def check_at(kind: type[ObjectT], meta: Meta, version: int) -> None:
    """Raise ``VersionConflict`` unless an object of this identity has this version."""
    if meta.resource_version != version:
        raise VersionConflict(
            f"{kind.__name__} {full_name(meta.project, meta.name)} is at version"
            f" {meta.resource_version}, not {version}"
        )


def replaced(struct: StructT, **fields: Any) -> StructT:
    """A copy with other values."""
    return msgspec.structs.replace(struct, **fields)


def remove(
    transaction: Transaction, objects_to_remove: Sequence[Encoded[ObjectT]]
) -> list[Encoded[ObjectT]]:
    """Remove stored objects with their labels and secrets; returns their last states."""
    gone = [
        replaced(obj, meta=replaced(obj.meta, resource_version=transaction.next_version()))
        for obj in objects_to_remove
    ]
    for start in range(0, len(gone), _AT_ONCE):
        uids = [obj.meta.uid for obj in gone[start : start + _AT_ONCE]]
        transaction.connection.execute(_REMOVE, {"uids": uids})
    for obj in gone:
        _announce(transaction, ChangeType.DELETED, obj)
        _record(transaction, "delete", obj, before=obj.spec)
    return gone


def write_statuses(
    transaction: Transaction, kind: type[ObjectT], wanted: Sequence[EncodedStatus]
) -> list[Meta]:
    """Write statuses of objects of one kind; raises ``VersionConflict``, ``ObjectNotFound``."""
    old = _identities(transaction, kind, wanted)
    made: dict[str, Meta] = {}
    for one in wanted:
        if one.uid in made:
            raise VersionConflict(f"{kind.__name__} {one.uid} is written twice at once")
        made[one.uid] = replaced(old[one.uid], resource_version=transaction.next_version())
    _write_together(transaction.connection, kind, wanted, made)
    transaction.remember(made.values())
    for one in wanted:
        columns = change_columns(kind, ChangeType.MODIFIED, made[one.uid], one.status)
        transaction.add_change(columns)
    return list(made.values())


def check_current(
    connection: Connection, kind: type[ObjectT], versions: Sequence[tuple[str, int]]
) -> dict[str, Meta]:
    """Identities by uid, all of them at the versions given.

    Raises ``VersionConflict``, ``ObjectNotFound``.
    """
    found: dict[str, Meta] = {}
    for start in range(0, len(versions), _AT_ONCE):
        uids = [uid for uid, _ in versions[start : start + _AT_ONCE]]
        for row in connection.execute(_METAS, {"kind": kind.__name__, "uids": uids}):
            found[row.uid] = meta_of(row)
    for uid, version in versions:
        if uid not in found:
            raise ObjectNotFound(f"no {kind.__name__} with uid {uid!r}")
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


def _write_together(
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
        written += connection.exec_driver_sql(
            _statement(len(part)), (*values, kind.__name__)
        ).rowcount
    if written != len(wanted):
        check_current(connection, kind, [(one.uid, one.resource_version) for one in wanted])
        raise VersionConflict(f"only {written} of {len(wanted)} {kind.__name__}s could be written")


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
        connection.execute(_WRITE_STATUS, rows)


@cache
def _statement(rows: int) -> str:
    return _WRITE_STATUSES.replace("(?)", placeholders(5, rows))
