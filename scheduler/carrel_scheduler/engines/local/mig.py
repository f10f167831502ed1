"""MIG instances of tasks: each gets the one that the core placed, made when it is not there.

The core says profile and memory slots; ``node.mig_allocation`` finds or makes the instance. One
that a task of this engine holds, or that processes use, is never touched: the task is then refused
for this node, and waits. So nothing has to be known about instances beforehand: those of an earlier
scheduler and those an admin made are found where they lie.
"""

import os
import re
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import EngineError, NotOnThisNode, TaskSpec
from carrel_scheduler.node.mig import Instance, MigDevices, MigError
from carrel_scheduler.node.mig_allocation import InstanceRequest, MachineInstances, take

CAPABILITIES: Final = Path("/proc/driver/nvidia/capabilities")
CAPABILITY_NODES: Final = Path("/dev/nvidia-caps")
MAJORS: Final = Path("/proc/devices")
_MINOR: Final = re.compile(r"^DeviceFileMinor:\s*(\d+)", re.MULTILINE)
_MAJOR: Final = re.compile(r"^\s*(\d+)\s+nvidia-caps$", re.MULTILINE)


def device_of(task: TaskSpec) -> str:
    """The divided GPU with the task's MIG instance."""
    return next(iter(task.device_uuids), "") or str(task.devices[0])


def take_instance(devices: MigDevices, task: TaskSpec, held: Collection[str]) -> Instance:
    """The instance of a task, found or made.

    Blocks while the driver works. One caller at a time for a device.

    Args:
        devices: of this machine.
        task: with ``mig_profile`` and ``mig_slots``.
        held: UUIDs of the instances of live tasks.

    Raises:
        NotOnThisNode: its slots are in use, or the driver refuses.
    """
    wanted = InstanceRequest(device=device_of(task), profile=task.mig_profile, bits=task.mig_slots)
    try:
        return take(devices, wanted, held, MachineInstances())
    except MigError as error:
        raise NotOnThisNode(str(error)) from error


def capability_nodes(
    minor: str,
    instance: Instance,
    *,
    capabilities: Path = CAPABILITIES,
    nodes: Path = CAPABILITY_NODES,
    majors: Path = MAJORS,
) -> list[str]:
    """Device files by which a task may use an instance; missing ones are made.

    Args:
        minor: number of the GPU's own device file.
        instance: of that GPU.
        capabilities: where the driver tells the numbers of the files.
        nodes: where they are.
        majors: the kernel's list of drivers.

    Raises:
        EngineError: the driver does not know the instance.
    """
    of_gpu = capabilities / f"gpu{minor}" / "mig" / f"gi{instance.number}"
    return [
        str(_node(file, nodes, majors))
        for file in (of_gpu / "access", of_gpu / f"ci{instance.compute}" / "access")
    ]


def _node(access: Path, nodes: Path, majors: Path) -> Path:
    try:
        found = _MINOR.search(access.read_text())
        major = _MAJOR.search(majors.read_text())
    except OSError as error:
        raise EngineError(f"the driver tells of no MIG capability {access}: {error}") from error
    if found is None or major is None:
        raise EngineError(f"{access} names no device file, or {majors} no driver nvidia-caps")
    node = nodes / f"nvidia-cap{found[1]}"
    if not node.exists():
        nodes.mkdir(mode=0o755, exist_ok=True)
        os.mknod(node, stat.S_IFCHR | 0o444, os.makedev(int(major[1]), int(found[1])))
    return node
