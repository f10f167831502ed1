"""Reports of an agent on a node about its GPUs.

There the kubelet chooses the GPUs of a pod; the core only counts them. So a real GPU is shown at
the place of the work whose processes run on it, and keeps its place while nothing says otherwise.
Work is judged by its own processes, never by the place that it was counted at.
"""

from collections.abc import Collection, Mapping, Sequence

from carrel_scheduler.node.contract import Device


def places_of(
    devices: Sequence[Device],
    owners: Mapping[int, Collection[str]],
    held: Mapping[int, Collection[str]],
    before: Mapping[str, int],
    size: int,
) -> dict[int, int]:
    """The place at which each device is shown.

    Args:
        devices: as the driver counts them.
        owners: workloads whose processes run on a device, by the driver's index.
        held: workloads that hold a place, by place.
        before: places by uuid, as they were.
        size: how many places there are; devices beyond have none.

    Returns:
        Places by the driver's index.
    """
    found: dict[int, int] = {}
    open_places = set(range(size))
    for device in devices:
        using = owners.get(device.index, ())
        fitting = [place for place in open_places if set(using) & set(held.get(place, ()))]
        if fitting:
            last = before.get(device.uuid, -1)
            found[device.index] = last if last in fitting else min(fitting)
            open_places.discard(found[device.index])
    for device in devices:
        if device.index in found or not open_places:
            continue
        last = before.get(device.uuid, -1)
        # Rather one that nobody holds: nobody's processes were seen there.
        rest = min(open_places, key=lambda place: (bool(held.get(place)), place))
        found[device.index] = last if last in open_places else rest
        open_places.discard(found[device.index])
    return found


def uuids_at_places(reported: Mapping[int, Device]) -> dict[str, int]:
    """The place of each device, by its UUID and by those of its MIG instances."""
    found = {device.uuid: place for place, device in reported.items()}
    for place, device in reported.items():
        found |= dict.fromkeys((one.uuid for one in device.instances), place)
    return found


def devices_of(uuids: Collection[str], places: Mapping[str, int]) -> frozenset[int]:
    """The places of the devices that a workload is known to have; empty if one is not known."""
    found = [places.get(uuid) for uuid in uuids]
    return frozenset() if None in found else frozenset(one for one in found if one is not None)
