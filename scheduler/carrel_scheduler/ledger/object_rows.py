"""Objects in SQL: what a call reads and writes inside the transaction that it was given.

Writers hold the store's lock, so a version that was compared stays compared. Every change gets a
row for watches with the whole state after it; the specification in it is a reference.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from carrel_scheduler.ledger.codec import Encoded, labels_from_json, to_json
from carrel_scheduler.ledger.objects import Meta, ObjectT
from carrel_scheduler.ledger.schema import labels, objects, specs
from carrel_scheduler.ledger.store import AlreadyExists, ChangeType, Conflict, NotFound
from carrel_scheduler.ledger.transaction import Transaction

StructT = TypeVar("StructT", bound=msgspec.Struct)
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
_NEW_OBJECT: Final = insert(objects)
_NEW_SPEC: Final = insert(specs)
_NEW_LABELS: Final = insert(labels)
_WRITE: Final = update(objects).where(objects.c.uid == bindparam("which"))
_WRITE_STATUS: Final = _WRITE.values(
    status=bindparam("status"),
    phase=bindparam("phase"),
    resource_version=bindparam("resource_version"),
)
_REMOVE: Final = delete(objects).where(objects.c.uid.in_(bindparam("uids", expanding=True)))
_REMOVE_LABELS: Final = delete(labels).where(labels.c.uid == bindparam("which"))


def stored(kind: type[ObjectT], row: Row[Any]) -> Encoded[ObjectT]:
    """A row of ``STORED``."""
    meta = Meta(
        name=row.name,
        project=row.project,
        uid=row.uid,
        resource_version=row.resource_version,
        generation=row.generation,
        created_at=row.created_at,
        created_by=row.created_by,
        labels=labels_from_json(row.labels),
    )
    return Encoded(kind, meta, row.spec, row.status, row.phase, row.user, row.workload_kind)


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
    found = _by_uids(connection, kind, [uid])
    if uid not in found:
        raise NotFound(f"no {kind.__name__} with uid {uid!r}")
    return found[uid]


def _by_uids(
    connection: Connection, kind: type[ObjectT], uids: Sequence[str]
) -> dict[str, Encoded[ObjectT]]:
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
    connection = transaction.connection
    try:
        connection.execute(_NEW_OBJECT, {**_columns(made), "created_version": version})
        connection.execute(_NEW_SPEC, {"uid": made.meta.uid, "generation": 1, "spec": made.spec})
    except IntegrityError as error:
        name = full_name(new.meta.project, new.meta.name)
        raise AlreadyExists(
            f"{new.kind.__name__} {name}, or one with uid {new.meta.uid}, exists"
        ) from error
    _write_labels(connection, made.meta)
    _announce(transaction, ChangeType.ADDED, made)
    return made


def _columns(obj: Encoded[ObjectT]) -> dict[str, Any]:
    columns = msgspec.structs.asdict(obj.meta)
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
        {
            "version": obj.meta.resource_version,
            "kind": obj.kind.__name__,
            "type": change.value,
            "uid": obj.meta.uid,
            "generation": obj.meta.generation,
            "meta": to_json(obj.meta, "meta"),
            "status": obj.status,
        }
    )


def update_spec(transaction: Transaction, wanted: Encoded[ObjectT]) -> Encoded[ObjectT]:
    """Write specification and labels; raises ``Conflict``, ``NotFound``."""
    connection, uid = transaction.connection, wanted.meta.uid
    old = current(by_uid(connection, wanted.kind, uid), wanted)
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
    _announce(transaction, ChangeType.MODIFIED, made)
    return made


def current(old: Encoded[ObjectT], wanted: Encoded[ObjectT]) -> Encoded[ObjectT]:
    """``old`` when ``wanted`` was made from it; raises ``Conflict``."""
    check_version(old, wanted.meta.resource_version)
    return old


def check_version(old: Encoded[ObjectT], version: int) -> None:
    """Raises ``Conflict`` unless the object is at that version."""
    if old.meta.resource_version != version:
        raise Conflict(
            f"{old.kind.__name__} {full_name(old.meta.project, old.meta.name)} is at version"
            f" {old.meta.resource_version}, not {version}"
        )


def replaced(struct: StructT, **fields: Any) -> StructT:
    """A copy with other values."""
    return msgspec.structs.replace(struct, **fields)


def load_current(
    connection: Connection, wanted: Sequence[Encoded[ObjectT]]
) -> dict[str, Encoded[ObjectT]]:
    """What is stored of objects of one kind, by uid; raises ``Conflict``, ``NotFound``."""
    if not wanted:
        return {}
    found = _by_uids(connection, wanted[0].kind, [obj.meta.uid for obj in wanted])
    for obj in wanted:
        if obj.meta.uid not in found:
            raise NotFound(f"no {obj.kind.__name__} with uid {obj.meta.uid!r}")
        current(found[obj.meta.uid], obj)
    return found


def write_statuses(
    transaction: Transaction,
    old: Mapping[str, Encoded[ObjectT]],
    wanted: Sequence[Encoded[ObjectT]],
) -> list[Encoded[ObjectT]]:
    """Write statuses of objects that ``load_current`` returned; raises ``Conflict``."""
    made: dict[str, Encoded[ObjectT]] = {}
    for obj in wanted:
        uid = obj.meta.uid
        if uid in made:
            raise Conflict(f"{obj.kind.__name__} {uid} is written twice at once")
        meta = replaced(old[uid].meta, resource_version=transaction.next_version())
        made[uid] = replaced(old[uid], meta=meta, status=obj.status, phase=obj.phase)
    rows = [
        {
            "which": uid,
            "status": obj.status,
            "phase": obj.phase,
            "resource_version": obj.meta.resource_version,
        }
        for uid, obj in made.items()
    ]
    if rows:
        transaction.connection.execute(_WRITE_STATUS, rows)
    for obj in made.values():
        _announce(transaction, ChangeType.MODIFIED, obj)
    return list(made.values())


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
    return gone
