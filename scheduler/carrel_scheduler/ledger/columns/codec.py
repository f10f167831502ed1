"""Objects and rows of the past as columns, and back; and many rows written with few statements.

An object is encoded in the caller's own thread, before anything is queued: what the caller does to
it afterwards changes nothing, and what could not be read back is refused before it is written.

SQLite runs inside this process: each statement, and each row of a driver's "execute many", gives
the interpreter away and has to win it back, which takes milliseconds while another thread works.
So rows are written dozens to a statement, in sizes that recur, so that the driver finds its
prepared statements again. PostgreSQL gets all rows at once, which its driver sends together.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, Generic

import msgspec
from sqlalchemy import Connection, Table, insert

from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.quarantine import Source
from carrel_schema.history import Decision, PlaceUse, Transition
from carrel_schema.objects import (
    KINDS,
    Department,
    Meta,
    ObjectT,
    Project,
    ReasonInfo,
    Workload,
)

_SPECS: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind.__annotations__["spec"]) for kind in KINDS.values()
}
_STATUSES: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind.__annotations__["status"]) for kind in KINDS.values()
}
SOURCES: Final[dict[type, Source]] = {
    Project: "project",
    Department: "department",
    Workload: "workload",
}
"""The names of kinds in errors about rows that cannot be read."""
_META: Final = msgspec.json.Decoder(Meta)
_LABELS: Final = msgspec.json.Decoder(dict[str, str])
_DEVICES: Final = msgspec.json.Decoder(tuple[int, ...])
_REASON: Final = msgspec.json.Decoder(ReasonInfo)
_PLACES: Final = msgspec.json.Decoder(tuple[PlaceUse, ...])


class Encoded(msgspec.Struct, Generic[ObjectT], frozen=True):
    """An object in stored form; ``phase``, ``user`` and ``workload_kind`` are for filters."""

    kind: type[ObjectT]
    meta: Meta
    spec: str
    status: str
    phase: str | None = None
    user: str | None = None
    workload_kind: str | None = None

    def decode(self) -> ObjectT:
        """A fresh copy of the object."""
        return build(self.kind, self.meta, self.spec, self.status)


class EncodedStatus(msgspec.Struct, frozen=True):
    """A status as it is stored, and the version of the object that it belongs to."""

    uid: str
    resource_version: int
    status: str
    phase: str | None = None


def to_json(value: Any, field: str) -> str:
    """JSON text of a value. Raises ``InvalidArgument`` if it has no JSON form."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(field, type(value).__name__, f"writable as JSON ({error})") from error


def encode(obj: ObjectT) -> Encoded[ObjectT]:
    """The columns of an object. Raises ``InvalidArgument`` if it could not be read back."""
    kind = type(obj)
    if kind not in _SPECS:
        raise InvalidArgument("kind", kind.__name__, "Project, Department or Workload")
    meta = _checked(_META, to_json(obj.meta, "meta"), "meta")
    spec, status = to_json(obj.spec, "spec"), to_json(obj.status, "status")
    _checked(_SPECS[kind], spec, "spec")
    _checked(_STATUSES[kind], status, "status")
    if isinstance(obj, Workload):
        return Encoded(kind, meta, spec, status, obj.status.phase, obj.spec.user, obj.spec.kind)
    return Encoded(kind, meta, spec, status)


def encode_status(obj: ObjectT) -> EncodedStatus:
    """The columns of a status. Raises ``InvalidArgument`` if it could not be read back."""
    kind = type(obj)
    if kind not in _STATUSES:
        raise InvalidArgument("kind", kind.__name__, "Project, Department or Workload")
    status = to_json(obj.status, "status")
    _checked(_STATUSES[kind], status, "status")
    phase = obj.status.phase if isinstance(obj, Workload) else None
    return EncodedStatus(obj.meta.uid, obj.meta.resource_version, status, phase)


def _checked(decoder: msgspec.json.Decoder[Any], text: str, field: str) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise InvalidArgument(field, "its content", f"valid ({error})") from error


def build(kind: type[ObjectT], meta: Meta, spec: str, status: str) -> ObjectT:
    """An object from its stored parts, which shares nothing with ``meta``."""
    return kind(
        meta=msgspec.structs.replace(meta, labels=dict(meta.labels)),
        spec=_SPECS[kind].decode(spec),
        status=_STATUSES[kind].decode(status),
    )


def meta_from_json(text: str) -> Meta:
    """The identity kept with a change."""
    return _META.decode(text)


def labels_from_json(text: str) -> dict[str, str]:
    """The labels kept with an object."""
    return _LABELS.decode(text)


@lru_cache(maxsize=4096)
def places_from_json(text: str) -> tuple[PlaceUse, ...]:
    """The places of a row, as the database keeps them; the same few come again and again."""
    return _PLACES.decode(text)


def row_values(row: Transition | Decision) -> tuple[Any, ...]:
    """A row of the past as values of its columns, in the order of its fields, without the id."""
    devices = to_json(row.devices, "devices") if row.devices else "[]"
    reason = None if row.reason is None else to_json(row.reason, "reason")
    fields = msgspec.structs.astuple(row)[1:-2]
    if isinstance(row, Transition):
        fields = (*fields[:-1], to_json(row.places, "places") if row.places else "[]")
    return (*fields, devices, reason)


def transition(columns: Mapping[str, Any]) -> Transition:
    """A ``Transition`` from its columns."""
    return Transition(**_parsed(columns), places=places_from_json(columns["places"]))


def decision(columns: Mapping[str, Any]) -> Decision:
    """A ``Decision`` from its columns."""
    return Decision(**_parsed(columns))


def _parsed(columns: Mapping[str, Any]) -> dict[str, Any]:
    reason = columns["reason"]
    return {
        **{name: value for name, value in columns.items() if name != "places"},
        "devices": _DEVICES.decode(columns["devices"]),
        "reason": None if reason is None else _REASON.decode(reason),
    }


# 128 rows of these columns stay well below the number of parameters that SQLite allows.
SIZES: Final = (128, 32, 8, 1)


def insert_many(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all have the same columns, in their order."""
    if not rows:
        return
    if connection.dialect.name != "sqlite":
        connection.execute(insert(table), rows)
        return
    names = tuple(rows[0])
    insert_tuples(connection, table, names, list(map(itemgetter(*names), rows)))


def insert_tuples(
    connection: Connection, table: Table, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
) -> None:
    """The same for rows of values, in the order of the columns' names."""
    if connection.dialect.name != "sqlite":
        insert_many(connection, table, [dict(zip(names, row, strict=True)) for row in rows])
        return
    for part in pieces(rows):
        values = tuple(chain.from_iterable(part))
        connection.exec_driver_sql(_insert(table.name, names, len(part)), values)


def pieces(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The rows in pieces of the sizes above, as few as possible."""
    start = 0
    for size in SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def placeholders(columns: int, rows: int) -> str:
    """``(?,?),(?,?)`` for two columns and two rows."""
    return ",".join([f"({','.join('?' * columns)})"] * rows)


@cache
def _insert(table: str, names: Sequence[str], rows: int) -> str:
    columns = ",".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({columns}) VALUES {placeholders(len(names), rows)}"  # noqa: S608 - names of our schema
