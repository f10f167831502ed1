"""Whether the GPUs of a workload work, as far as it was measured.

Use that is not known counts as work, so that nothing is stopped as idle because nobody looked: no
reading, one that is older than ``STALE_SECONDS``, and a device without counters. A workload is idle
only while every node on which it holds GPUs has a fresh reading that says so.
"""

from collections.abc import Mapping
from typing import Final

from carrel_scheduler.core.mig import counted_gpu_milli
from carrel_scheduler.node.contract import DeviceUse
from carrel_scheduler.workloads.cache import CachedWorkload, GpuReading

ACTIVE_UTILIZATION: Final = 0.01
"""A device busier than this counts as working."""
STALE_SECONDS: Final = 60.0
"""A reading that is older tells nothing of now."""


def holds_gpus(entry: CachedWorkload) -> bool:
    """Whether it was given GPUs, parts of one, or an instance."""
    resources = entry.workload.spec.resources
    return counted_gpu_milli(resources.gpu_milli, resources.mig_profile) > 0


def working(use: DeviceUse | None) -> bool | None:
    """Whether a device works; ``None``: it does not tell."""
    if use is None or not use.known:
        return None
    return use.utilization > ACTIVE_UTILIZATION


def take_readings(
    entry: CachedWorkload, node: str, use: Mapping[int, DeviceUse], now: float
) -> None:
    """A look at a node: note what the GPUs that the workload holds there do."""
    places = [place for place in entry.places.values() if place.node == node]
    if not places or not holds_gpus(entry):
        return
    if unknown(entry, now):
        entry.gpu_active_at = now
    found = [working(use.get(device)) for place in places for device in place.devices]
    if any(found):
        entry.gpu_active_at = now
        entry.gpu_readings[node] = GpuReading(now, working=True)
    elif not found or None in found:
        entry.gpu_readings.pop(node, None)
    else:
        entry.gpu_readings[node] = GpuReading(now, working=False)


def unknown(entry: CachedWorkload, now: float) -> bool:
    """Whether it holds GPUs on a node that has no fresh reading of them."""
    readings = (entry.gpu_readings.get(place.node) for place in entry.places.values())
    return holds_gpus(entry) and any(
        reading is None or now - reading.at > STALE_SECONDS for reading in readings
    )


def active(entry: CachedWorkload, now: float) -> bool:
    """Whether it counts as working on its GPUs now."""
    nodes = {place.node for place in entry.places.values()}
    return unknown(entry, now) or any(
        reading.working for node, reading in entry.gpu_readings.items() if node in nodes
    )
