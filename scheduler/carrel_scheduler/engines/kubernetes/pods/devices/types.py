"""The kinds of ``resource.k8s.io/v1`` as they are decoded: only the fields that are used.

Configuration of devices is passed on from classes and claims to allocations as it stands.
"""

from typing import Any, Final

import msgspec

from carrel_scheduler.engines.kubernetes.pods.types import Kube, ObjectMeta, Taint, Toleration
from carrel_scheduler.kube.resources import Resource

_GROUP: Final = "resource.k8s.io"
DEVICE_CLASSES: Final = Resource(_GROUP, "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_SLICES: Final = Resource(_GROUP, "v1", "resourceslices", "ResourceSlice", namespaced=False)
RESOURCE_CLAIMS: Final = Resource(_GROUP, "v1", "resourceclaims", "ResourceClaim")
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps an allocated claim until its devices are free again; Kubernetes' controller removes it."""
Config = tuple[dict[str, Any], ...]


class Attribute(Kube, frozen=True):
    """A value of one of four types."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class CapacityLimits(Kube, frozen=True):
    """Amounts that may be consumed: from ``min`` on, in steps, up to ``max``."""

    min: str | None = None
    max: str | None = None
    step: str | None = None


class RequestPolicy(Kube, frozen=True):
    """The amounts that requests may consume of a capacity that is shared; asked ones are raised."""

    default: str | None = None
    valid_values: tuple[str, ...] = ()
    valid_range: CapacityLimits | None = None


class SliceCapacity(Kube, frozen=True):
    """A quantity; of a device that is shared also how it may be consumed."""

    value: str = "0"
    request_policy: RequestPolicy | None = None


class CounterUse(Kube, frozen=True):
    """The amounts of the counters of a set that a device takes."""

    counter_set: str = ""
    counters: dict[str, SliceCapacity] = msgspec.field(default_factory=dict)


class CounterSet(Kube, frozen=True):
    """Counters that devices of a pool share."""

    name: str = ""
    counters: dict[str, SliceCapacity] = msgspec.field(default_factory=dict)


class SliceDevice(Kube, frozen=True):
    """A device of a slice.

    ``consumes_counters``, ``allow_multiple_allocations`` and ``binding_conditions`` mark devices
    that are parts of others, are shared, or are prepared before a pod is bound: once all of these
    conditions are true, and not if one of ``binding_failure_conditions`` is.
    """

    name: str
    attributes: dict[str, Attribute] = msgspec.field(default_factory=dict)
    capacity: dict[str, SliceCapacity] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    consumes_counters: tuple[CounterUse, ...] = ()
    allow_multiple_allocations: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


class Pool(Kube, frozen=True):
    """Slices of one pool; it is complete with so many of the highest generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(Kube, frozen=True):
    """The devices of one node; those that several nodes reach name no node."""

    driver: str = ""
    pool: Pool = Pool()
    node_name: str = ""
    devices: tuple[SliceDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Kube, frozen=True):
    """Devices that a driver offers."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SliceSpec = SliceSpec()


class Expression(Kube, frozen=True):
    """A CEL expression that selects devices."""

    expression: str = ""


class DeviceSelector(Kube, frozen=True):
    """A condition that selects devices."""

    cel: Expression = Expression()


class DeviceClassSpec(Kube, frozen=True):
    """The devices of a class, and their configuration."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: Config = ()
    extended_resource_name: str = ""


class DeviceClass(Kube, frozen=True):
    """A class of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequests(Kube, frozen=True):
    """The requested amounts of a device's capacities: quantities by name."""

    requests: dict[str, str] = msgspec.field(default_factory=dict)


class DeviceRequest(Kube, frozen=True):
    """A number of devices of a class; ``name`` is that of an alternative."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequests | None = None


class ClaimRequest(Kube, frozen=True):
    """Either exactly this request, or the first possible one of these."""

    name: str
    exactly: DeviceRequest | None = None
    first_available: tuple[DeviceRequest, ...] = ()


class DeviceConstraint(Kube, frozen=True):
    """The devices of these requests (none named: of all) have the same value of an attribute."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class ClaimDevices(Kube, frozen=True):
    """The devices that a claim asks for."""

    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: Config = ()


class ResourceClaimSpec(Kube, frozen=True):
    """The specification of a claim."""

    devices: ClaimDevices = ClaimDevices()


class AllocatedDevice(Kube, frozen=True):
    """A device allocated to a request; of one that is shared, the share and what it consumes.

    The conditions are those of the device when it was allocated.
    """

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    share_id: str = msgspec.field(default="", name="shareID")
    consumed_capacity: dict[str, str] = msgspec.field(default_factory=dict)
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


class AllocatedDevices(Kube, frozen=True):
    """All devices allocated to a claim."""

    results: tuple[AllocatedDevice, ...] = ()


class AllocationResult(Kube, frozen=True):
    """An allocation."""

    devices: AllocatedDevices = AllocatedDevices()


class DeviceCondition(Kube, frozen=True):
    """A condition of an allocated device, written by its driver."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(Kube, frozen=True):
    """The status of an allocated device, written by its driver."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = msgspec.field(default="", name="shareID")
    conditions: tuple[DeviceCondition, ...] = ()


class Consumer(Kube, frozen=True):
    """A user of a claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Kube, frozen=True):
    """The allocation of a claim, its users, and what drivers say of its devices."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[Consumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Kube, frozen=True):
    """A claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
