"""The limiter is told what the driver holds of a GPU besides allocations."""

import os
import struct
from pathlib import Path

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.engines.local.gpu_memory import DriverMemory
from carrel_scheduler.node.contract import DeviceUse, OwnerUse
from carrel_scheduler.node.limiter.folder import MIB, prepare_usage

TASK = TaskStatus(id=TaskId("w", 0, 0), phase=TaskPhase.RUNNING, node="desk", pid=7, devices=(1,))


def usage(folder: Path) -> Path:
    (folder / "gpu").mkdir(parents=True)
    prepare_usage(folder / "gpu" / "usage", None)
    return folder / "gpu" / "usage"


def says(path: Path, mib: int) -> None:
    """What the task's processes say that they hold."""
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack("Q", mib * MIB), 128)


def told(path: Path) -> int:
    """What the limiter was told, in MiB."""
    return int(struct.unpack("Q", path.read_bytes()[256:264])[0]) // MIB


def seen(mib: int, owner: str = "7", index: int = 1) -> list[DeviceUse]:
    own = OwnerUse(owner=owner, utilization=None, memory_used_mib=mib)
    return [DeviceUse(index=index, utilization=0.0, memory_used_mib=mib, owners=(own,))]


def test_the_least_of_three_looks_counts(tmp_path: Path) -> None:
    path, memory = usage(tmp_path), DriverMemory(lambda _: tmp_path)
    says(path, 1000)
    found = []
    for held in (1400, 9000, 1410, 1390, 9000, 9000, 9000):
        memory.note([TASK], seen(held))
        found.append(told(path))
    assert found == [0, 0, 400, 390, 390, 390, 8000]


def test_a_task_that_says_more_than_there_is_gains_nothing(tmp_path: Path) -> None:
    path, memory = usage(tmp_path), DriverMemory(lambda _: tmp_path)
    says(path, 2**40)
    for _ in range(4):
        memory.note([TASK], seen(500))
    assert told(path) == 0


def test_other_devices_other_tasks_and_ended_ones_are_left_alone(tmp_path: Path) -> None:
    path, memory = usage(tmp_path), DriverMemory(lambda _: tmp_path)
    ended = TaskStatus(id=TASK.id, phase=TaskPhase.ENDED, node="desk", pid=7, devices=(1,))
    for task, use in ((TASK, seen(500, index=0)), (TASK, seen(500, owner="8")), (ended, seen(500))):
        for _ in range(4):
            memory.note([task], use)
    assert told(path) == 0
    DriverMemory(lambda _: tmp_path / "nothing").note([TASK], seen(500))
