"""From a place named by an event to what it takes, checked."""

from carrel_scheduler.core.devices.classes import Classes, Form
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import Place
from carrel_scheduler.core.layers import Footprint, Layer
from carrel_scheduler.core.mig import full_slots
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.resources import MILLI


def footprint_of(nodes: NodeColumns, classes: Classes, cls: int, place: Place) -> Footprint:
    """What a task of this class takes there. Raises ``InvalidEvent`` for an impossible place."""
    name, devices, slots = place
    slot = nodes.slot(name)
    wanted = classes.devices(cls)
    there = int(nodes.devices[slot])
    if len(devices) != wanted or len(set(devices)) != wanted:
        raise InvalidEvent("bad_devices", "devices", devices, f"{wanted} different devices")
    if any(not 0 <= device < there for device in devices):
        expected = f"devices 0 to {there - 1} of {name}"
        raise InvalidEvent("unknown_device", "devices", devices, expected)
    if not nodes.mig[slot]:
        right = not slots
    elif classes.kinds[cls].form is Form.WHOLE:
        slots, right = full_slots(nodes.fact(slot).mig_model), True
    else:
        right = bool(slots) == bool(devices)
    if not right:
        expected = "bits of an instance on nodes with MIG, none otherwise"
        raise InvalidEvent("bad_slots", "slots", slots, expected)
    share = classes.share_on(cls, nodes, slot) if devices else 0
    if devices and share <= 0:
        raise InvalidEvent("bad_node", "node", name, "a node whose GPUs can be used this way")
    counted = classes.request(cls).counted_milli
    return Footprint(slot, tuple(sorted(devices)), share, classes.host(cls), slots, counted)


def check_free(free: Layer, place: Footprint) -> None:
    """Refuse a place whose devices are not free.

    CPU and memory are not refused: a node may report less than it had, and what runs, runs.
    """
    for device in place.devices:
        taken = place.slots & ~int(free.slots[device, place.node])
        if int(free.devices[device, place.node]) < place.share or taken:
            raise InvalidEvent("device_taken", "devices", place.devices, "devices with room")


def check_promises(promised: Layer, places: tuple[Footprint, ...]) -> None:
    """Refuse places that are promised twice, to others or among themselves.

    What is promised may still run: the promise then waits for its end.
    """
    shares: dict[tuple[int, int], int] = {}
    for place in places:
        for device in place.devices:
            key = (device, place.node)
            shares[key] = shares.get(key, int(promised.devices[key])) + place.share
            if shares[key] > MILLI or int(promised.slots[key]) & place.slots:
                expected = "devices that are promised to nobody else"
                raise InvalidEvent("device_taken", "devices", place.devices, expected)
