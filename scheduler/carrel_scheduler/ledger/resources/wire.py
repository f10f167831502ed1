"""The ledger's structures in the form of manifests.

Every structure has a twin that is made from it: the same fields in camelCase, the same defaults,
the same structures inside. Two say amounts as people on a cluster write them (``ResourceAmounts``,
``Needs``), and volumes have names instead of places in a pair; nothing else is another.

A twin is only read into. What is written is the ledger's own structure without what it has by
default, see ``sparse``.
"""

from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from carrel_scheduler.ledger.resources import quantities
from carrel_scheduler.ledger.resources.quantities import Quantity
from carrel_schema.constraints import Constraint, DestinationPath, SharedGpus, VolumeSource
from carrel_schema.objects import Quota, Resources, WorkloadSpec

_MIB: Final = 2**20
_MILLI: Final = 1000


class ResourceAmounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Guaranteed amounts of each resource; null means no bound.

    Attributes:
        gpus: number of GPUs, also a share of one in hundredths.
        cpu: processors, as ``2`` or ``500m``.
        memory: as ``8Gi``.
    """

    gpus: float | None = 0.0
    cpu: Quantity | None = None
    memory: Quantity | None = None

    def __post_init__(self) -> None:
        """Raises ``InvalidArgument`` here: conversion takes what a property raises for absence."""
        _ = self.cpu_milli, self.memory_bytes

    @property
    def gpu_milli(self) -> int | None:
        """Thousandths of a GPU."""
        return None if self.gpus is None else round(self.gpus * _MILLI)

    @property
    def cpu_milli(self) -> int | None:
        """Millicores."""
        return None if self.cpu is None else quantities.milli(self.cpu, "cpu")

    @property
    def memory_bytes(self) -> int | None:
        """Bytes."""
        return None if self.memory is None else quantities.whole(self.memory, "memory")


class ResourceLimits(ResourceAmounts, frozen=True, kw_only=True, rename="camel"):
    """The largest amounts that use may reach; null means no bound.

    Attributes:
        gpus: number of GPUs, also a share of one in hundredths.
        cpu: processors, as ``2`` or ``500m``.
        memory: as ``8Gi``.
    """

    gpus: float | None = None


class Needs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The resource request of one task.

    Attributes:
        gpus: number of GPUs, or a share of one in hundredths (0.25).
        cpu: its share of the processors while others want them, too, as ``2`` or ``500m``.
        cpu_limit: the most that it may use of idle processors; left out: all.
        memory: set aside for it, and never more, as ``8Gi``.
        gpu_memory: memory of one GPU that it shares, as ``8Gi``, in place of GPUs; the share that
            was found for it stands in ``gpus``.
        mig_profile: one MIG instance, as ``1g.10gb``, in place of GPUs.
    """

    gpus: float = 0.0
    cpu: Quantity = "100m"
    cpu_limit: Quantity = 0
    memory: Quantity = "1Gi"
    gpu_memory: Quantity = 0
    gpu_devices: SharedGpus = 1
    mig_profile: str = ""

    def __post_init__(self) -> None:
        """Raises ``InvalidArgument`` here: conversion takes what a property raises for absence."""
        _ = self.cpu_milli, self.cpu_limit_milli, self.memory_bytes, self.gpu_memory_mib

    @property
    def gpu_milli(self) -> int:
        """Thousandths of a GPU."""
        return round(self.gpus * _MILLI)

    @property
    def cpu_milli(self) -> int:
        """Millicores."""
        return quantities.milli(self.cpu, "resources.cpu")

    @property
    def cpu_limit_milli(self) -> int:
        """Millicores, 0 for no limit."""
        return quantities.milli(self.cpu_limit, "resources.cpuLimit")

    @property
    def memory_bytes(self) -> int:
        """Bytes."""
        return quantities.whole(self.memory, "resources.memory")

    @property
    def gpu_memory_mib(self) -> int:
        """MiB, rounded up."""
        return -(-quantities.whole(self.gpu_memory, "resources.gpuMemory") // _MIB)


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A folder or claim that the task sees at ``destination`` (empty: where it is)."""

    source: VolumeSource
    destination: DestinationPath = ""


_AS_PEOPLE_SAY: Final[dict[type[msgspec.Struct], type[msgspec.Struct]]] = {
    Resources: Needs,
    Quota: ResourceAmounts,
    ResourceLimits: ResourceLimits,
}


def _volumes(spec: Any) -> list[tuple[str, str]]:
    return [(one.source, one.destination) for one in spec.mounts]


@cache
def twin(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The structure for reading manifests."""
    if struct in _AS_PEOPLE_SAY:
        return _AS_PEOPLE_SAY[struct]
    hints = get_type_hints(struct, include_extras=True)
    if hints.get("limit") is Quota:
        hints["limit"] = ResourceLimits
    fields: list[Any] = [
        (field.name, _twinned(hints[field.name]), *_default(field, hints[field.name]))
        for field in msgspec.structs.fields(struct)
        if not (struct is WorkloadSpec and field.name == "volumes")
    ]
    more: dict[str, Any] = {"__doc__": struct.__doc__}
    if struct is WorkloadSpec:
        volumes: list[Mount] = msgspec.field(name="volumes", default_factory=list)
        fields.append(("mounts", Annotated[list[Mount], Constraint(max_length=64)], volumes))
        more["volumes"] = property(_volumes)
    return msgspec.defstruct(
        struct.__name__,
        fields,
        kw_only=True,
        frozen=True,
        rename="camel",
        namespace=more,
        module=__name__,
    )


def _default(field: msgspec.structs.FieldInfo, hint: Any) -> tuple[Any, ...]:
    if field.default_factory is not msgspec.NODEFAULT:
        return (msgspec.field(default_factory=field.default_factory),)
    if field.default is msgspec.NODEFAULT:
        return ()
    if isinstance(field.default, msgspec.Struct):
        return (msgspec.convert(_plain(field.name, field.default), _twinned(hint)),)
    return (field.default,)


def _twinned(hint: Any) -> Any:
    """A type in which each structure of the schema is replaced by its twin."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return twin(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None or not arguments:
        return hint
    if origin is Annotated:
        return Annotated[(_twinned(arguments[0]), *arguments[1:])]
    inner = tuple(one if one is Ellipsis else _twinned(one) for one in arguments)
    if origin in (Union, UnionType):
        return Union[inner]  # noqa: UP007 - the members are known at run time only
    if hint is not None and all(old is new for old, new in zip(arguments, inner, strict=True)):
        return hint
    return origin[inner]


def sparse(obj: msgspec.Struct) -> dict[str, Any]:
    """The fields of a structure that differ from their defaults, in the form of manifests."""
    if isinstance(obj, Resources):
        return _needs(obj)
    found: dict[str, Any] = {}
    for name, manifest_name, default in _fields(type(obj)):
        value = getattr(obj, name)
        if value != default or type(value) is not type(default):
            found[manifest_name] = _plain(name, value)
    return found


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    return tuple(
        (field.name, camel(field.name), default_of(field))
        for field in msgspec.structs.fields(struct)
    )


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """The default of a field; ``NODEFAULT`` for a required one."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def camel(name: str) -> str:
    """A field's name in a manifest."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Quota):
        return _amounts(value, usual=None if name == "limit" else 0)
    if isinstance(value, msgspec.Struct):
        return sparse(value)
    if name == "volumes":
        return [_mount(source, destination) for source, destination in value]
    if isinstance(value, list | tuple):
        return [_plain("", one) for one in value]
    if isinstance(value, dict):
        return {key: _plain("", one) for key, one in value.items()}
    return value


def _mount(source: str, destination: str) -> dict[str, str]:
    where = {"destination": destination} if destination else {}
    return {"source": source, **where}


def _needs(resources: Resources) -> dict[str, Any]:
    """The resources with all fields but "no limit": defaults differ between kinds of work."""
    said = {
        "gpus": _number(resources.gpu_milli),
        "cpu": quantities.of_milli(resources.cpu_milli),
        "memory": quantities.of_bytes(resources.memory_bytes),
    }
    if resources.cpu_limit_milli:
        said["cpuLimit"] = quantities.of_milli(resources.cpu_limit_milli)
    if resources.gpu_memory_mib:
        said["gpuMemory"] = quantities.of_bytes(resources.gpu_memory_mib * _MIB)
    if resources.gpu_devices > 1:
        said["gpuDevices"] = resources.gpu_devices
    if resources.mig_profile:
        said["migProfile"] = resources.mig_profile
    return said


def _amounts(quota: Quota, usual: int | None) -> dict[str, Any]:
    cpu, memory, gpus = quota.cpu_milli, quota.memory_bytes, quota.gpu_milli
    said: dict[str, Any] = {}
    if gpus != usual:
        said["gpus"] = None if gpus is None else _number(gpus)
    if cpu is not None:
        said["cpu"] = quantities.of_milli(cpu)
    if memory is not None:
        said["memory"] = quantities.of_bytes(memory)
    return said


def _number(thousandths: int) -> float:
    return thousandths // _MILLI if thousandths % _MILLI == 0 else thousandths / _MILLI
