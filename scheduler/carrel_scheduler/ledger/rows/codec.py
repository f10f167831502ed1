"""Objects and rows of the past as columns, and back.

An object is encoded in the caller's own thread, before anything is queued: what the caller does to
it afterwards changes nothing, and what could not be read back is refused before it is written.
"""

from collections.abc import Mapping
from typing import Any, Final, Generic

import msgspec

from carrel_scheduler.ledger.accounting.spans import places_from_json
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.records import Decision, Transition
from carrel_scheduler.quarantine import Source
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
"""What objects are called where those go that cannot be read."""
_META: Final = msgspec.json.Decoder(Meta)
_LABELS: Final = msgspec.json.Decoder(dict[str, str])
_DEVICES: Final = msgspec.json.Decoder(tuple[int, ...])
_REASON: Final = msgspec.json.Decoder(ReasonInfo)


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
