"""Work that holds more of a GPU's memory than its fraction, as the driver tells of its processes.

The limiter keeps programs within it (``node.limiter``); here those are noticed that go round the
limiter, or run where there is none. The driver counts contexts, too, which the limiter does not:
``ROOM_MIB`` and a fiftieth of the fraction are left for them. Work that is over that in ``LOOKS``
looks in a row says so for as long as it is, or is ended, as the admin chose.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.node.contract import DeviceUse, NodeFacts
from carrel_scheduler.workloads.launch.task_specs import part_of
from carrel_scheduler.workloads.lifecycle.termination import stop_for
from carrel_scheduler.workloads.state import reasons
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.pass_changes import PassChanges

log = logging.getLogger(__name__)
Enforcement = Literal["off", "warn", "end"]
LOOKS: Final = 3
ROOM_MIB: Final = 1024
ROOM_PART: Final = 50


class GpuMemoryWatch:
    """Compares the memory that work holds on shared GPUs with its share."""

    def __init__(self, enforcement: Enforcement) -> None:
        self._enforcement = enforcement
        self._over: dict[str, int] = {}

    def look(
        self,
        changes: PassChanges,
        facts: NodeFacts,
        use: Collection[DeviceUse],
        here: Iterable[CachedWorkload],
    ) -> None:
        """A look at a node found this use of its devices; ``here`` is work that holds some."""
        if self._enforcement == "off" or not use:
            return
        by_index = {one.index: one for one in use}
        for entry in tuple(here):
            if 0 < entry.workload.spec.resources.gpu_milli < MILLI:
                self._compare(changes, entry, facts, by_index)
        self._over = {uid: looks for uid, looks in self._over.items() if changes.cache.get(uid)}

    def _compare(
        self,
        changes: PassChanges,
        entry: CachedWorkload,
        facts: NodeFacts,
        use: Mapping[int, DeviceUse],
    ) -> None:
        there = [place for place in entry.places.values() if place.node == facts.name]
        if not there or entry.workload.status.phase != "running":
            return
        indices = {device for place in there for device in place.devices}
        own = sum(
            part_of(entry.workload.spec.resources, facts.devices[device].memory_mib)
            for place in there
            for device in place.devices
            if device < len(facts.devices)
        )
        held = sum(
            one.memory_used_mib
            for index in indices
            for one in (use[index].owners if index in use else ())
            if one.owner == entry.uid
        )
        if not own or held <= own + own // ROOM_PART + ROOM_MIB * len(there):
            self._within(changes, entry)
            return
        looks = self._over[entry.uid] = self._over.get(entry.uid, 0) + 1
        if looks >= LOOKS:
            self._too_much(changes, entry, held, own, told=looks > LOOKS)

    def _within(self, changes: PassChanges, entry: CachedWorkload) -> None:
        status = entry.workload.status
        self._over.pop(entry.uid, None)
        if status.reason is not None and status.reason.token == reasons.GPU_MEMORY_EXCEEDED:
            status.reason = None
            changes.mark(entry)

    def _too_much(
        self, changes: PassChanges, entry: CachedWorkload, held: int, own: int, *, told: bool
    ) -> None:
        ends = self._enforcement == "end"
        reason = reasons.gpu_memory_exceeded(entry.workload.spec, held, own, ended=ends)
        if not told:
            meta = entry.workload.meta
            log.warning("%s/%s: %s", meta.project, meta.name, reason.sentence)
        if ends:
            self._over.pop(entry.uid, None)
            stop_for(changes, entry, reason)
        elif entry.workload.status.reason is None:
            entry.workload.status.reason = reason
            changes.mark(entry)
