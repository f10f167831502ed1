"""GPUs of one machine that vanish, come back counted anew and report Xids, and what runs on them.

The engine is that of ``unit.workloads.harness``; instances are taken by the product's
own code. It looks at hardware only: which processes are on which GPU, by UUID.
"""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

import msgspec
from typing_extensions import override

from carrel_scheduler.core import mig
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.contract import EngineError, NotOnThisNode, TaskId, TaskSpec
from carrel_scheduler.engines.local.mig import device_of, take_instance
from carrel_scheduler.node.contract import Device, HealthCondition, NodeFacts
from carrel_scheduler.node.mig import Instance, SimulatedMig
from unit.workloads.harness import NODE, ControlledEngine

MEMORY_MIB: Final = 40_000
MODEL: Final = "A100-40GB"
FATAL: Final = (48, 62, 79, 119)
LOW_SLOTS: Final = ((0, 4), (4, 4), (0, 2), (6, 1))
"""Starts and sizes of instances that somebody leaves behind."""


class Gpus:
    """The GPUs as the driver has them.

    Attributes:
        order: UUIDs as the driver counts them; those of ``gone`` do not answer.
        xids: conditions of a GPU that the process which heard of them remembers.
        divided: they are MIG devices.
    """

    def __init__(self, count: int, *, divided: bool) -> None:
        self.order = [f"GPU-{number}" for number in range(count)]
        self.gone: set[str] = set()
        self.xids: dict[str, tuple[HealthCondition, ...]] = {}
        self.divided = divided
        self.mig = SimulatedMig(MODEL)
        self._xids = 0

    @property
    def there(self) -> list[str]:
        """The GPUs that answer."""
        return [uuid for uuid in self.order if uuid not in self.gone]

    def facts(self) -> NodeFacts:
        """The facts that the driver gives: it counts the GPUs that answer."""
        devices = tuple(
            Device(
                index=index,
                uuid=uuid,
                name="A100",
                memory_mib=MEMORY_MIB,
                simulated=False,
                conditions=self.xids.get(uuid, ()),
            )
            for index, uuid in enumerate(self.there)
        )
        return NodeFacts(
            name=NODE,
            cpu_milli=64_000,
            memory_mib=256_000,
            devices=devices,
            simulated=False,
            mig_model=MODEL if self.divided else "",
        )

    def report_xid(self, uuid: str, code: int) -> None:
        """The driver tells of a fatal Xid."""
        self._xids += 1
        told = HealthCondition(key=f"xid:{code}:{self._xids}", severity="failed", message="Xid")
        self.xids[uuid] = (*self.xids.get(uuid, ()), told)[-8:]

    def leave_instance(self, dice: Random) -> None:
        """Leave an instance whose maker died, before a program ran there or half-way through."""
        uuid = dice.choice(self.order)
        start, size = dice.choice(LOW_SLOTS)
        bits = ((1 << size) - 1) << start
        if any(one.bits & bits for one in self.mig.instances(uuid)):
            return
        profiles = [one for one in self.mig.model.profiles.values() if start in one.starts]
        fitting = [one for one in profiles if one.size == size]
        made = self.mig.create(uuid, dice.choice(fitting).name, bits)
        if dice.random() < 0.5:  # without its compute instance it has no MIG device
            self.mig.remove(uuid, made)
            self.mig._there[uuid].append(msgspec.structs.replace(made, uuid=""))


class FaultyEngine(ControlledEngine):
    """Starts tasks on GPUs that may vanish meanwhile, and answers that may be lost.

    Attributes:
        lose: called while a task is about to be started.
        dies_at: ``before`` or ``after`` the process runs the scheduler dies in the next start.
        killed: set where it died; nothing of that start goes on.
    """

    def __init__(self, gpus: Gpus, killed: asyncio.Event) -> None:
        super().__init__()
        self.gpus, self.killed = gpus, killed
        self.instances: dict[TaskId, Instance] = {}
        self.lose: Callable[[TaskSpec], None] | None = None
        self.dies_at = ""

    @override
    async def start(self, task: TaskSpec) -> None:
        if self.lose is not None:
            self.lose(task)
        if missing := set(task.device_uuids) - set(self.gpus.there):
            raise NotOnThisNode(f"GPU {min(missing)} does not answer")
        if len(task.device_uuids) != len(task.devices):
            raise EngineError("one UUID for each of the devices is expected")
        if task.mig_slots and task.id not in self.specs:
            held = {self.instances[one].uuid for one in self.alive if one in self.instances}
            self.instances[task.id] = take_instance(self.gpus.mig, task, held)
        await self._die("before")
        await super().start(task)
        await self._die("after")

    async def _die(self, when: str) -> None:
        """The scheduler is killed within a start."""
        if self.dies_at == when:
            self.dies_at = ""
            self.killed.set()
            await asyncio.Event().wait()

    def check(self) -> None:
        """Fail if a GPU, a part of its memory or a slot has two users."""
        shares: dict[str, int] = {}
        memory: dict[str, int] = {}
        slots: dict[str, int] = {}
        for task in self.alive:
            spec = self.specs[task]
            if spec.mig_slots:
                uuid, bits = device_of(spec), self.instances[task].bits
                assert bits == spec.mig_slots, (task, bits)
                assert not slots.get(uuid, 0) & bits, f"slots of {uuid} are given twice"
                slots[uuid] = slots.get(uuid, 0) | bits
                continue
            share = min(spec.gpu_milli, MILLI) if spec.devices else 0
            for uuid in spec.device_uuids:
                shares[uuid] = shares.get(uuid, 0) + share
                memory[uuid] = memory.get(uuid, 0) + spec.gpu_memory_mib
        _at_most(shares, MILLI, "is given twice")
        _at_most(memory, MEMORY_MIB, "has less memory than its shares together")
        for uuid in self.gpus.order:
            self._check_instances(uuid)

    def _check_instances(self, uuid: str) -> None:
        """The instances of a GPU lie apart, and each user has its own."""
        taken = 0
        for one in self.gpus.mig.instances(uuid):
            assert not one.bits & taken, f"instances of {uuid} overlap"
            assert one.bits <= mig.model_of(MODEL).full
            taken |= one.bits
        used = [self.instances[task].uuid for task in self.alive if task in self.instances]
        assert len(used) == len(set(used)), "an instance has two users"


def _at_most(used: Mapping[str, int], most: int, what: str) -> None:
    over = {uuid: amount for uuid, amount in used.items() if amount > most}
    assert not over, f"{what}: {over}"
