"""Conversion of the ledger's objects to custom resources, and back.

What the ledger knows of an object beside its specification and status lies in labels and
annotations. A label of the ledger that Kubernetes takes is one there; the others are kept in an
annotation. A status is encoded with its conditions and with what tables show; reading ignores both.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

import msgspec

from carrel_scheduler.kube.metadata import Metadata
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.resources import conditions, kinds
from carrel_scheduler.ledger.resources.wire import sparse, twin
from carrel_schema import names
from carrel_schema.objects import (
    KINDS,
    Meta,
    Object,
    ObjectT,
    Project,
    Workload,
    WorkloadSpec,
)

_LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_OURS: Final = frozenset({names.UID, names.PROJECT, names.KIND, names.USER})
_KEPT: Final = msgspec.json.Decoder(dict[str, str])
_NOTHING: Final = msgspec.Raw(b"{}")


class StoredResource(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A custom resource as it is read; specification and status are decoded when needed."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata
    spec: msgspec.Raw = _NOTHING
    status: msgspec.Raw = _NOTHING

    @property
    def version(self) -> int:
        """The API server's version of the resource."""
        return int(self.metadata.resource_version)


def resource_of(obj: Object) -> Resource:
    """The resource of an object."""
    if isinstance(obj, Workload):
        return kinds.WORK[obj.spec.kind].resource
    return kinds.resources_of(type(obj))[0]


def namespace_of(obj: Object) -> str:
    """The namespace that an object lies in; empty for those that lie in none."""
    return names.namespace_of(obj.meta.project) if isinstance(obj, Workload) else ""


def manifest(obj: Object) -> dict[str, Any]:
    """A new custom resource; its status is written afterwards."""
    resource = resource_of(obj)
    metadata: dict[str, Any] = {
        "name": obj.meta.name,
        "labels": labels(obj),
        "annotations": annotations(obj),
    }
    if kept_by := finalizers(obj):
        metadata["finalizers"] = kept_by
    if isinstance(obj, Workload):
        metadata["namespace"] = namespace_of(obj)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": specification(obj),
    }


def finalizers(obj: Object) -> list[str]:
    """The finalizers that keep an object until its tasks, or its project's work, have ended."""
    return [names.FINALIZER] if isinstance(obj, Workload | Project) else []


def labels(obj: Object) -> dict[str, str]:
    """The labels: those that are valid in Kubernetes, and Carrel's."""
    ours = {names.UID: obj.meta.uid}
    if isinstance(obj, Workload):
        ours |= {names.PROJECT: obj.meta.project, names.KIND: obj.spec.kind}
        ours |= {names.USER: obj.spec.user} if is_label_value(obj.spec.user) else {}
    return {key: text for key, text in obj.meta.labels.items() if _fits(key, text)} | ours


def annotations(obj: Object) -> dict[str, str]:
    """The annotations: an object's origin, and the labels that are none for Kubernetes."""
    meta = obj.meta
    told = {names.CREATED_AT: repr(meta.created_at), names.CREATED_BY: meta.created_by}
    if isinstance(obj, Workload) and obj.status.queued_at:
        told[names.QUEUED_AT] = repr(obj.status.queued_at)
    return told | kept_labels(obj)


def kept_labels(obj: Object) -> dict[str, str]:
    """The annotation with the labels that are none for Kubernetes; empty when there are none."""
    rest = {key: text for key, text in obj.meta.labels.items() if not _fits(key, text)}
    return {names.LABELS: msgspec.json.encode(rest).decode()} if rest else {}


def is_label_value(text: str) -> bool:
    """Whether a text is a valid label value in Kubernetes."""
    return _LABEL_VALUE.fullmatch(text) is not None


def _fits(key: str, text: str) -> bool:
    if key in _OURS:
        return False
    return _LABEL_KEY.fullmatch(key) is not None and is_label_value(text)


def specification(obj: Object) -> dict[str, Any]:
    """A specification as it stands in a manifest; the kind of work is the manifest's own."""
    spec = sparse(obj.spec)
    spec.pop("kind", None)
    return spec


def status(obj: Object) -> dict[str, Any]:
    """A status with its conditions."""
    return {**sparse(obj.status), **conditions.of(obj)}


def read(kind: type[ObjectT], stored: StoredResource) -> ObjectT:
    """The object; raises ``InvalidArgument`` for one that no definition of ours would let in."""
    try:
        return cast("ObjectT", _read(kind, stored))
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        full = f"{stored.kind} {stored.metadata.namespace}/{stored.metadata.name}"
        raise InvalidArgument(full, "its content", f"valid ({error})") from error


def _read(kind: type[Object], stored: StoredResource) -> Object:
    spec = _read_spec(kind, stored)
    status_type = KINDS[kind.__name__].__annotations__["status"]
    told = msgspec.json.decode(stored.status, type=twin(status_type))
    state = msgspec.convert(told, status_type, from_attributes=True)
    obj: Object = cast("Any", kind)(meta=meta_of(kind, stored), spec=spec, status=state)
    if isinstance(obj, Workload):
        _add_what_lies_elsewhere(obj, stored)
    return obj


def _read_spec(kind: type[Object], stored: StoredResource) -> Any:
    spec_type = KINDS[kind.__name__].__annotations__["spec"]
    said = msgspec.json.decode(stored.spec, type=twin(spec_type))
    spec = msgspec.convert(said, spec_type, from_attributes=True)
    if isinstance(spec, WorkloadSpec):
        spec.kind = kinds.BY_KIND[stored.kind]
        spec.delete = spec.delete or stored.metadata.deletion_timestamp is not None
    return spec


def _add_what_lies_elsewhere(obj: Workload, stored: StoredResource) -> None:
    if obj.status.phase == "pending" and not obj.status.queued_at:
        obj.status.queued_at = _time(stored.metadata.annotations.get(names.QUEUED_AT, "0"))


def meta_of(kind: type[Object], stored: StoredResource) -> Meta:
    """The identity; without Carrel's label the API server's uid is used."""
    meta = stored.metadata
    marks = meta.annotations
    project = meta.namespace.removeprefix(names.NAMESPACE_PREFIX) if kind is Workload else ""
    return Meta(
        name=meta.name,
        project=project,
        uid=meta.labels.get(names.UID) or meta.uid,
        resource_version=stored.version,
        generation=meta.generation,
        created_at=_created_at(meta),
        created_by=marks.get(names.CREATED_BY, ""),
        labels=labels_of(meta),
        deleting=meta.deletion_timestamp is not None,
    )


def _created_at(meta: Metadata) -> float:
    told = meta.annotations.get(names.CREATED_AT)
    return _time(told) if told else datetime.fromisoformat(meta.creation_timestamp).timestamp()


def _time(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no time")
    return value


def labels_of(meta: Metadata) -> dict[str, str]:
    """The labels set by users."""
    given = {key: text for key, text in meta.labels.items() if key not in _OURS}
    return given | _KEPT.decode(meta.annotations.get(names.LABELS, "{}"))


def given_fields(stored: StoredResource) -> Mapping[str, Any]:
    """The fields that the author wrote into the specification, by the manifest's names."""
    return msgspec.json.decode(stored.spec, type=dict[str, Any])
