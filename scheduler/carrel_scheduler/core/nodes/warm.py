"""MIG instances that nobody uses are kept: the next task of the same profile starts at once.

Their slots count as free. One is removed only when another profile needs its room; which one a
placement removes follows from the bits of the two (see ``mig.removals``).
"""

from carrel_scheduler.core.layers import Footprint

Instance = tuple[str, int]
"""Profile and bits."""


class WarmInstances:
    """Unused instances by (node, device)."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[Instance, ...]] = {}

    def on(self, node: int, device: int) -> tuple[Instance, ...]:
        """Instances that are kept on a device."""
        return self._kept.get((node, device), ())

    def all(self) -> dict[tuple[int, int], tuple[Instance, ...]]:
        """All of them by (node, device)."""
        return dict(self._kept)

    def by_device(self, node: int, devices: int) -> tuple[tuple[Instance, ...], ...]:
        """Instances that are kept on each device of a node."""
        return tuple(self.on(node, device) for device in range(devices))

    def taken(self, place: Footprint) -> None:
        """A task lies there now: it uses the kept instance, or those in its way were removed."""
        for device in place.devices:
            left = tuple(
                (profile, bits)
                for profile, bits in self.on(place.node, device)
                if not bits & place.slots
            )
            self._put(place.node, device, left)

    def left(self, place: Footprint, profile: str) -> None:
        """A task that used an instance ended; the instance stays."""
        for device in place.devices:
            kept = (*self.on(place.node, device), (profile, place.slots))
            self._put(place.node, device, tuple(sorted(kept)))

    def removed(self, node: int, device: int, bits: int) -> None:
        """An instance is gone."""
        left = tuple(one for one in self.on(node, device) if one[1] != bits)
        self._put(node, device, left)

    def forget(self, node: int) -> None:
        """A node left."""
        for key in [key for key in self._kept if key[0] == node]:
            del self._kept[key]

    def _put(self, node: int, device: int, instances: tuple[Instance, ...]) -> None:
        if instances:
            self._kept[node, device] = instances
        else:
            self._kept.pop((node, device), None)
