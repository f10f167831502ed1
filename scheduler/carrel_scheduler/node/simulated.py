"""Simulated GPUs for machines without any: everything works except CUDA itself.

What they seem to do is derived from what the processes holding them really do on the CPU: one
busy core is one busy GPU, and resident memory is GPU memory, shared out over the devices that a
process tree holds. Every fact carries ``simulated=True`` and is shown as such.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from carrel_scheduler.node.contract import Device, DeviceUse, NodeFacts, OwnerUse
from carrel_scheduler.node.mig import SimulatedMig
from carrel_scheduler.node.processes import TreeUse, measure_tree


class SimulatedProvider:
    """A machine with simulated devices; see ``node.contract.DeviceProvider``.

    Args:
        node: facts of the machine itself, without devices.
        count: number of devices.
        memory_mib: of each.
        name: model to pose as.
        mig: instances of the devices, where they are divided.
        clock: seconds, monotonic.
        measure: use of a process tree by pid.
    """

    def __init__(
        self,
        node: NodeFacts,
        *,
        count: int,
        memory_mib: int,
        name: str,
        mig: SimulatedMig | None = None,
        clock: Callable[[], float] = time.monotonic,
        measure: Callable[[int], TreeUse | None] = measure_tree,
    ) -> None:
        devices = tuple(
            Device(index=index, uuid="", name=name, memory_mib=memory_mib, simulated=True)
            for index in range(count)
        )
        self._facts = msgspec.structs.replace(node, devices=devices, simulated=True)
        self._memory_mib, self._clock, self._measure = memory_mib, clock, measure
        self._mig = mig
        self._before: dict[int, tuple[float, float]] = {}

    def facts(self) -> NodeFacts:
        """The facts of the simulated machine."""
        if self._mig is None:
            return self._facts
        devices = tuple(
            msgspec.structs.replace(device, instances=self._mig.shown(str(device.index)))
            for device in self._facts.devices
        )
        return msgspec.structs.replace(self._facts, devices=devices)

    def sample(self, tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:
        """Use since the previous sample; a process seen for the first time counts as idle."""
        now = self._clock()
        held: dict[int, int] = {}
        for pids in tasks_by_device.values():
            for pid in pids:
                held[pid] = held.get(pid, 0) + 1
        busy, memory, seen = {}, {}, {}
        for pid, devices in held.items():
            use = self._measure(pid)
            if use is None:
                continue
            at, seconds = self._before.get(pid, (now, use.cpu_seconds))
            span = now - at
            busy[pid] = max(0.0, use.cpu_seconds - seconds) / span / devices if span > 0 else 0.0
            memory[pid] = use.memory_mib / devices
            seen[pid] = (now, use.cpu_seconds)
        self._before = seen
        return [
            self._use(device.index, tasks_by_device.get(device.index, ()), busy, memory)
            for device in self._facts.devices
        ]

    def _use(
        self, index: int, pids: Sequence[int], busy: dict[int, float], memory: dict[int, float]
    ) -> DeviceUse:
        there = tuple(pid for pid in pids if pid in memory)
        return DeviceUse(
            index=index,
            utilization=min(1.0, sum((busy[pid] for pid in there), 0.0)),
            memory_used_mib=min(self._memory_mib, round(sum(memory[pid] for pid in there))),
            pids=there,
            owners=tuple(
                OwnerUse(
                    owner=str(pid),
                    utilization=min(1.0, busy[pid]),
                    memory_used_mib=min(self._memory_mib, round(memory[pid])),
                )
                for pid in there
            ),
        )
