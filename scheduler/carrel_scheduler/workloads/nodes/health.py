"""Devices that health checks took out of service, and the admins' word that they are well.

A device with a condition is cordoned: nothing new starts there. It returns when the condition
ends, or when an admin uncordons it: that is about the conditions of that moment, so a new one
cordons it again. What is acknowledged is kept for as long as the scheduler runs.
"""

from collections.abc import Iterable, Mapping, Sequence

from carrel_scheduler.node.contract import Device, HealthCondition


class Cordons:
    """Conditions by node and device index."""

    def __init__(self) -> None:
        self._found: dict[str, dict[int, tuple[HealthCondition, ...]]] = {}
        self._acknowledged: dict[tuple[str, str], frozenset[str]] = {}

    def see(self, node: str, devices: Iterable[Device]) -> Mapping[int, Sequence[HealthCondition]]:
        """The devices of a node as they are now; returns what is wrong, by index."""
        found = {}
        for device in devices:
            key = (node, device.uuid)
            present = {one.key for one in device.conditions}
            self._acknowledged[key] = self._acknowledged.get(key, frozenset()) & present
            if not self._acknowledged[key]:
                del self._acknowledged[key]
            left = self._left(node, device)
            if left:
                found[device.index] = left
        self._found[node] = found
        return found

    def _left(self, node: str, device: Device) -> tuple[HealthCondition, ...]:
        known = self._acknowledged.get((node, device.uuid), frozenset())
        return tuple(one for one in device.conditions if one.key not in known)

    def acknowledge(self, node: str, device: Device) -> bool:
        """An admin returns a device to service; whether anything was wrong with it."""
        if not self._found.get(node, {}).pop(device.index, ()):
            return False
        present = frozenset(one.key for one in device.conditions)
        self._acknowledged[node, device.uuid] = present
        return True

    def on(self, node: str) -> frozenset[int]:
        """The devices of a node that are cordoned."""
        return frozenset(self._found.get(node, ()))

    def of(self, node: str, index: int) -> Sequence[HealthCondition]:
        """What is wrong with a device."""
        return self._found.get(node, {}).get(index, ())


def in_words(conditions: Sequence[HealthCondition]) -> str:
    """All of them as one sentence without a full stop."""
    return "; ".join(one.message for one in conditions)


def is_fatal(conditions: Sequence[HealthCondition]) -> bool:
    """Whether no work can go on there."""
    return any(one.severity == "failed" for one in conditions)
