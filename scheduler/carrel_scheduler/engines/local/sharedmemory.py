"""The task's ``/dev/shm``: how large it has to be, and whose it is.

Data loaders pass batches through it, and containers often have 64 MiB of it. A workload that asks
for a large one gets its own where tasks have a private view of the file system, bounded like its
memory, which its contents count towards. Elsewhere it uses the machine's, if that is larger.
"""

import os
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskSpec

MACHINES: Final = Path("/dev/shm")  # noqa: S108 - the one that the kernel provides
SMALL_BYTES: Final = 64 * 1024**2


def options(task: TaskSpec, *, private: bool, machines: Path = MACHINES) -> str:
    """Mount options of the task's own ``/dev/shm``; empty when it uses the machine's.

    Raises ``EngineError`` for a task that asks for a large one where there is none to be had.

    Args:
        task: what it asks for; without a memory limit it gets half of the machine's memory.
        private: its view of the file system is its own.
        machines: where the machine's shared memory is.
    """
    if not task.large_shm:
        return ""
    if private:
        return f"mode=1777,size={task.memory_mib}m" if task.memory_mib > 0 else "mode=1777"
    size = _size(machines)
    if size <= SMALL_BYTES:
        raise EngineError(
            f"large_shm=True: {machines} has {size // 1024**2} MiB here, and tasks that run under"
            " the service's own account cannot have one of their own. Give this container more"
            " (docker: --shm-size=8g), or start Carrel as root"
        )
    return ""


def _size(path: Path) -> int:
    try:
        facts = os.statvfs(path)
    except OSError as error:
        raise EngineError(f"large_shm=True: {path} cannot be used: {error.strerror}") from error
    return facts.f_frsize * facts.f_blocks
