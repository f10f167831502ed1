"""Devices that health checks took out of service, and the admins' word that they are well.

A device with a condition is cordoned: nothing new starts there. It returns when the condition
ends, or when an admin uncordons it: that is about the conditions of that moment, so a new one
cordons it again.

An Xid is an event, which only the process that heard of it reports. So its condition, and what an
admin acknowledged, are kept here by the device's UUID and written to the ledger (``record``,
``restore``): neither a restart of the scheduler nor one of the node's agent uncordons a device.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from carrel_scheduler.node.contract import Device, HealthCondition
from carrel_scheduler.node.health import UNKNOWN_TIME

SETTING: Final = "device_cordons"
"""The ledger's setting that holds the record."""
EVENT_PREFIX: Final = "xid:"
MOST_KEPT: Final = 10_000
"""Devices that are remembered; of more, the oldest are forgotten."""

DeviceKey = tuple[str, str]
"""The node, and the UUID of the device there."""


class CordonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a device that is kept over restarts.

    Attributes:
        index: where the node showed it last.
        events: conditions that no check reports again.
        acknowledged: keys of conditions with which an admin returned it to service.
    """

    node: str
    uuid: str
    index: int
    events: Sequence[HealthCondition] = ()
    acknowledged: Sequence[str] = ()


class Cordons:
    """Conditions by node and device.

    Attributes:
        changed: something that ``record`` returns changed since the attribute was last unset.
    """

    def __init__(self) -> None:
        self.changed = False
        self._found: dict[str, dict[int, tuple[HealthCondition, ...]]] = {}
        self._kept: dict[DeviceKey, CordonRecord] = {}

    def see(self, node: str, devices: Iterable[Device]) -> Mapping[int, Sequence[HealthCondition]]:
        """The devices of a node as they are now; returns what is wrong, by index."""
        found = {}
        for device in devices:
            left = self._follow(node, device)
            if left:
                found[device.index] = left
        self._found[node] = found
        return found

    def acknowledge(self, node: str, device: Device) -> bool:
        """Return a device to service for an admin; returns whether it had any condition."""
        if not self._found.get(node, {}).pop(device.index, ()):
            return False
        present = tuple(sorted(one.key for one in device.conditions))
        self._keep(node, device, events=(), acknowledged=present)
        return True

    def on(self, node: str) -> frozenset[int]:
        """The cordoned devices of a node."""
        return frozenset(self._found.get(node, ()))

    def of(self, node: str, index: int) -> Sequence[HealthCondition]:
        """The conditions of a device."""
        return self._found.get(node, {}).get(index, ())

    def record(self) -> Sequence[CordonRecord]:
        """The records to keep over a restart."""
        return tuple(self._kept.values())

    def restore(self, kept: Iterable[CordonRecord]) -> None:
        """Cordon devices as recorded, until their nodes are seen."""
        for one in kept:
            self._kept[one.node, one.uuid] = one
            if one.events:
                self._found.setdefault(one.node, {})[one.index] = tuple(one.events)

    def _follow(self, node: str, device: Device) -> tuple[HealthCondition, ...]:
        """The present conditions of a device that were not acknowledged."""
        known = self._kept.get(_key(node, device))
        present = {one.key: one for one in device.conditions}
        done = set(_acknowledged(known.acknowledged if known else (), present))
        events = {_kind(one.key): one for one in (known.events if known else ())}
        for condition in device.conditions:
            if condition.key.startswith(EVENT_PREFIX) and condition.key not in done:
                events[_kind(condition.key)] = condition
        checks = [one for one in device.conditions if not one.key.startswith(EVENT_PREFIX)]
        lasting = tuple(events.values())
        self._keep(node, device, events=lasting, acknowledged=tuple(sorted(done)))
        return (*lasting, *(one for one in checks if one.key not in done))

    def _keep(
        self,
        node: str,
        device: Device,
        *,
        events: Sequence[HealthCondition],
        acknowledged: Sequence[str],
    ) -> None:
        key = _key(node, device)
        before = self._kept.get(key)
        if not events and not acknowledged:
            if before is not None:
                del self._kept[key]
                self.changed = True
            return
        now = CordonRecord(
            node=node,
            uuid=key[1],
            index=device.index,
            events=events,
            acknowledged=acknowledged,
        )
        if now == before:
            return
        self._kept[key] = now
        self.changed = True
        for oldest in tuple(islice(self._kept, max(0, len(self._kept) - MOST_KEPT))):
            del self._kept[oldest]


def _key(node: str, device: Device) -> DeviceKey:
    """The key of a device: its UUID, or its index without one."""
    return node, device.uuid or str(device.index)


def _acknowledged(known: Iterable[str], present: Iterable[str]) -> Iterator[str]:
    """The present keys that an admin acknowledged, maybe with the time of the event."""
    known = frozenset(known)
    kinds = {_kind(key) for key in known if key.startswith(EVENT_PREFIX)}
    for key in present:
        if key in known or (key.endswith(f":{UNKNOWN_TIME:.0f}") and _kind(key) in kinds):
            yield key


def _kind(key: str) -> str:
    """An event's key without its time: a later one of the same kind replaces it."""
    return key.rpartition(":")[0]


def in_words(conditions: Sequence[HealthCondition]) -> str:
    """The conditions as one sentence without a full stop."""
    return "; ".join(one.message for one in conditions)


def ends_work(conditions: Sequence[HealthCondition]) -> bool:
    """Whether work on the device is to begin elsewhere."""
    return any(one.severity != "closed" for one in conditions)


def is_fatal(conditions: Sequence[HealthCondition]) -> bool:
    """Whether work on the device cannot go on."""
    return any(one.severity == "failed" for one in conditions)
