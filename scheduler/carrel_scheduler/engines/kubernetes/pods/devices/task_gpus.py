"""GPUs of nodes that Carrel's own tasks get by claims, and what such nodes say of them. Pure.

An administrator names the class of their devices. A node serves tasks by claims if all of its GPUs
are of that class; one where a device plugin offers GPUs serves them as ever.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from carrel_scheduler.core.requests import TASK_GPUS
from carrel_scheduler.core.resources import MIB
from carrel_scheduler.engines.kubernetes.pods.devices.counters import Amounts, enough, less
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import PROFILE, NodeDevice
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    DeviceClass,
    DeviceSelector,
    Expression,
)
from carrel_scheduler.engines.kubernetes.pods.nodes import BY_PLUGIN, GPU_MEMORY, GPU_MODELS
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused, nanos, pieces_floor
from carrel_schema.names import MIG_PREFIX, mig_resource

_ADDITION: Final = re.compile(r"b\.(\w)")
MODEL: Final = "productName"
"""Attribute of devices of NVIDIA's and AMD's drivers."""
MEMORY: Final = "memory"


def are_of(gpus: Sequence[NodeDevice], device_class: DeviceClass | None) -> bool:
    """Whether these are GPUs, and all of them of a class."""
    if device_class is None or not gpus:
        return False
    expressions = [one.cel.expression for one in device_class.spec.selectors]
    try:
        return all(one.is_selected(expressions) for one in gpus)
    except PodRefused:
        return False


def instance_counts(instances: Iterable[NodeDevice], left: Amounts) -> dict[str, int]:
    """The number of MIG instances of each profile that can exist at once, by resource name."""
    found: dict[str, int] = {}
    remaining: dict[str, Amounts] = {}
    for one in instances:
        name = mig_resource(one.profile)
        rest = remaining.get(name, left)
        found.setdefault(name, 0)
        if enough(rest, one.takes):
            remaining[name] = less(rest, one.takes)
            found[name] += 1
    return found


def whole_of(gpus: Iterable[NodeDevice], instance: NodeDevice) -> bool:
    """Whether the GPU of an instance is one of these: they take of the same counters."""
    sets = {key[:3] for key in instance.takes}
    return any(key[:3] in sets for one in gpus for key in one.takes)


def instance_selector(resource: str) -> DeviceSelector:
    """Devices that are MIG instances of the profile that a resource is called after."""
    name = resource.removeprefix(MIG_PREFIX)
    spelled = dict.fromkeys((name, _ADDITION.sub(r"b+\1", name)))
    profile = f'device.attributes[device.driver]["{PROFILE}"]'
    known = f'"{PROFILE}" in device.attributes[device.driver]'
    right = " || ".join(f'{profile} == "{one}"' for one in spelled)
    return DeviceSelector(cel=Expression(f"{known} && ({right})"))


def labels_with_gpus(
    labels: Mapping[str, str], gpus: Sequence[NodeDevice], for_tasks: str
) -> dict[str, str]:
    """A node's labels with those that its driver's devices stand for, unless it has them.

    ``for_tasks``: by which claims tasks get its GPUs; empty: they get none.
    """
    found = dict(labels)
    found.pop(TASK_GPUS, None)
    if for_tasks:
        found[TASK_GPUS] = for_tasks
    models = {_model(one) for one in gpus}
    if len(models) == 1 and (model := models.pop()) and not any(key in found for key in GPU_MODELS):
        found[GPU_MODELS[0]] = model
    least = min(map(_memory_mib, gpus), default=0)
    if least:
        found.setdefault(GPU_MEMORY, str(least))
    return found


def labels_with_plugin(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a node whose GPUs tasks get from a device plugin."""
    return {**labels, TASK_GPUS: BY_PLUGIN}


def _model(one: NodeDevice) -> str:
    attribute = one.device.attributes.get(MODEL)
    return (attribute.string or "").replace(" ", "-") if attribute is not None else ""


def _memory_mib(one: NodeDevice) -> int:
    capacity = one.device.capacity.get(MEMORY)
    try:
        return 0 if capacity is None else pieces_floor(nanos(capacity.value)) // MIB
    except PodRefused:
        return 0
