"""Objects in SQL: what a call reads and writes inside the transaction that it was given.

Writers hold the store's lock, so a version that was compared stays compared. Every change gets a
row for watches with the whole state after it; the specification in it is a reference.
"""

from collections.abc import Sequence
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

from carrel_scheduler.ledger.rows.bulk import insert_many
from carrel_scheduler.ledger.rows.codec import Encoded, labels_from_json, to_json
from carrel_scheduler.ledger.rows.tables import labels, objects, specs
from carrel_scheduler.ledger.store import AlreadyExists, ChangeType, Conflict, NotFound
from carrel_scheduler.ledger.transaction import Transaction
from carrel_scheduler.ledger.watches.recent_commits import Fresh
from carrel_schema.objects import Meta, Object, ObjectT

StructT = TypeVar("StructT", bound=msgspec.Struct)


class Creation(msgspec.Struct, Generic[ObjectT], frozen=True):
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
    """Read one; raises ``NotFound``."""
    key = {"kind": kind.__name__, "project": project, "name": name}
    row = connection.execute(_BY_NAME, key).one_or_none()
    if row is None:
        raise NotFound(f"no {kind.__name__} {full_name(project, name)}")
    return stored(kind, row)


def by_uid(connection: Connection, kind: type[ObjectT], uid: str) -> Encoded[ObjectT]:
    """Read one; raises ``NotFound``."""
    found = by_uids(connection, kind, [uid])
    if uid not in found:
        raise NotFound(f"no {kind.__name__} with uid {uid!r}")
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
    """Store a new object, whose uid and time of creation are set; raises ``AlreadyExists``."""
    version = transaction.next_version()
    made = replaced(new, meta=replaced(new.meta, resource_version=version, generation=1))
    _insert(transaction, [made])
    return made


def create_many(
    transaction: Transaction, news: Sequence[Encoded[ObjectT]]
) -> list[Creation[ObjectT]]:
    """Create the objects of one kind whose names are free, in order.

    Raises ``AlreadyExists`` for a uid that is taken: uids are not for callers to choose twice.
    """
    there = _by_names(transaction.connection, news)
    made: list[Encoded[ObjectT]] = []
    outcomes: list[Creation[ObjectT]] = []
    for new in news:
        name = (new.meta.project, new.meta.name)
        if name in there:
            outcomes.append(Creation(there[name].meta, there[name].decode()))
            continue
        version = transaction.next_version()
        there[name] = replaced(new, meta=replaced(new.meta, resource_version=version, generation=1))
        made.append(there[name])
        outcomes.append(Creation(there[name].meta, None))
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
        raise AlreadyExists(
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
    """Write specification and labels; raises ``Conflict``, ``NotFound``."""
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
    """Raise ``Conflict`` unless the object has this version."""
    check_at(old.kind, old.meta, version)


def check_at(kind: type[ObjectT], meta: Meta, version: int) -> None:
    """Raise ``Conflict`` unless an object of this identity has this version."""
    if meta.resource_version != version:
        raise Conflict(
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
