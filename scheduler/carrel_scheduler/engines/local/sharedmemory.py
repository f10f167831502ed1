"""The task's ``/dev/shm``: how large it is.

Data loaders pass batches through it, and containers often have 64 MiB of it. In a sandbox each task
has one of its own, bounded like its memory, which its contents count towards. Elsewhere tasks use
the machine's, if that is larger than a container's.
"""

import os
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskSpec

MACHINES: Final = Path("/dev/shm")  # noqa: S108 - the one that the kernel provides
SMALL_BYTES: Final = 64 * 1024**2


def size(task: TaskSpec) -> int:
    """Bytes of its own; 0 stands for the kernel's default, half of the machine's memory."""
    return task.memory_mib * 1024**2


def check_machines(task: TaskSpec, machines: Path = MACHINES) -> None:
    """Refuse (``EngineError``) a large one where the machine's is the only one, and is small."""
    if not task.large_shm:
        return
    found = _size(machines)
    if found <= SMALL_BYTES:
        raise EngineError(
            f"large_shm=True: {machines} has {found // 1024**2} MiB here, and tasks that run under"
            " the service's own account cannot have one of their own. Give this container more"
            " (docker: --shm-size=8g), or start Carrel as root"
        )


def _size(path: Path) -> int:
    try:
        facts = os.statvfs(path)
    except OSError as error:
        raise EngineError(f"large_shm=True: {path} cannot be used: {error.strerror}") from error
    return facts.f_frsize * facts.f_blocks
