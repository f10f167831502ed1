"""From a place named by an event to what it takes, checked."""

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.layers import Footprint, Layer
from carrel_scheduler.core.nodes import NodeColumns
from carrel_scheduler.core.projects import Triple
from carrel_scheduler.core.resources import MILLI, Amounts


def footprint_of(
    nodes: NodeColumns, request: Amounts, node: str, devices: tuple[int, ...]
) -> Footprint:
    """What a task of this request takes there. Raises ``InvalidEvent`` for an impossible place."""
    slot = nodes.slot(node)
    wanted = request.gpu_milli // MILLI
    there = int(nodes.devices[slot])
    if len(devices) != wanted or len(set(devices)) != wanted:
        raise InvalidEvent("bad_devices", "devices", devices, f"{wanted} different devices")
    if any(not 0 <= device < there for device in devices):
        expected = f"devices 0 to {there - 1} of {node}"
        raise InvalidEvent("unknown_device", "devices", devices, expected)
    return Footprint(slot, tuple(sorted(devices)), MILLI, request.cpu_milli, request.memory_mib)


def check_places(room: Layer, *places: Footprint) -> None:
    """Refuse places whose devices are not free in ``room``, or taken twice among themselves.

    CPU and memory are not refused: a node may report less than it had, and what runs, runs.
    """
    taken: set[tuple[int, int]] = set()
    for place in places:
        for device in place.devices:
            free = int(room.devices[device, place.node])
            if free < place.share or (place.node, device) in taken:
                raise InvalidEvent("device_taken", "devices", place.devices, "devices with room")
            taken.add((place.node, device))


def gpu_cpu_memory(place: Footprint) -> Triple:
    """The amounts of a footprint in the column order of every sum."""
    return (place.share * len(place.devices), place.cpu, place.memory)
