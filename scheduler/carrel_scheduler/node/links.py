"""Links between the devices of a machine: NVLink and NVSwitch from NVML, NUMA from sysfs.

Two devices that are linked directly or meet at a switch are 0 hops apart, two of one NUMA node 2;
pairs that are not named count as farthest (``core.events.Link``).
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from carrel_scheduler.node.contract import DeviceLink

NVLINK_HOPS: Final = 0
NUMA_HOPS: Final = 2


@dataclass(frozen=True, slots=True)
class DeviceLinks:
    """The links that one device reports.

    Attributes:
        bus_id: its PCI address, ``00000000:07:00.0``.
        peers: PCI addresses of devices that it is linked with.
        switched: whether one of its links leads to a switch.
        numa_node: -1 if unknown.
    """

    bus_id: str
    peers: frozenset[str] = frozenset()
    switched: bool = False
    numa_node: int = -1


def links_of(devices: Mapping[int, DeviceLinks]) -> tuple[DeviceLink, ...]:
    """The pairs of devices that are linked more closely than others, by index."""
    found = []
    for (first, one), (second, other) in itertools.combinations(sorted(devices.items()), 2):
        hops = _hops(one, other)
        if hops is not None:
            found.append(DeviceLink(first, second, hops))
    return tuple(found)


def _hops(one: DeviceLinks, other: DeviceLinks) -> int | None:
    linked = other.bus_id in one.peers or one.bus_id in other.peers
    if linked or (one.switched and other.switched):
        return NVLINK_HOPS
    return NUMA_HOPS if one.numa_node >= 0 and one.numa_node == other.numa_node else None


def numa_node(bus_id: str, sysfs: Path = Path("/sys")) -> int:
    """The NUMA node of a PCI device; -1 if the kernel does not tell."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        name = f"{int(domain, 16):04x}:{rest}"
        return int((sysfs / "bus" / "pci" / "devices" / name / "numa_node").read_text())
    except (OSError, ValueError):
        return -1
