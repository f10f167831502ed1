"""Fractions of GPUs: how a task is kept within its part of the memory (see ``node.limiter``).

Where the driver limits memory by control group, the group of the task has its part as limit, too,
which no program goes round (``node.memory_limits``). The limiter stays: it shows the part as the
whole GPU, and counts managed memory, which the driver does not.

In a sandbox the limiter's files are mounted where the task cannot change them, and the library is
named in the task's ``/etc/ld.so.preload``, so every program loads it whatever its environment says.
Where all work runs under the service's own account there are no mounts: the environment names
library and files, and a program that clears it is not limited.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskSpec, TaskStatus
from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.cgroups import Limiter
from carrel_scheduler.engines.local.task_state import write_whole
from carrel_scheduler.node.contract import (
    DRIVER_LIMIT,
    LIMITER,
    DeviceUse,
    fractions_kept_by,
    limit_refused,
)
from carrel_scheduler.node.limiter.folder import (
    FOLDER,
    limits_text,
    prepare_usage,
    read_usage,
    write_overhead,
)
from carrel_scheduler.node.limiter.library import LIBRARY, NoLibrary, find_library
from carrel_scheduler.node.memory_limits import GroupMemoryLimits, MemoryLimitError

LOOKS: Final = 3
PRELOAD: Final = Path("/etc/ld.so.preload")
VERSION_2: Final = "tasks have no control groups of version 2"
OFF: Final = "Fractions of GPUs are not kept within their memory: that is switched off."
_log = logging.getLogger(__name__)


class DriverLimits:
    """Limits of GPU memory that the driver keeps for the control groups of tasks.

    Args:
        groups: of the engine's tasks.
        driver: sets the limits.
    """

    def __init__(self, groups: Limiter, driver: GroupMemoryLimits | None = None) -> None:
        self._groups, self._driver = groups, driver or GroupMemoryLimits()
        self._trial = threading.Lock()
        self._available: bool | None = None
        self.refusal = ""

    def available(self) -> bool:
        """Whether the driver has such limits; the first call tries it."""
        with self._trial:
            if self._available is None:
                refusal = self._try()
                self._available = not refusal
                if refusal:
                    _log.info("No limits of GPU memory by the driver: %s.", refusal)
        return self._available

    def _try(self) -> str:
        try:
            with self._groups.trial_group() as group:
                if group is None:
                    return VERSION_2
                self._driver.try_with(group)
        except (MemoryLimitError, OSError) as error:
            return str(error)
        return ""

    def limit(self, task: TaskId, parts_mib: Mapping[str, int]) -> None:
        """Limit a task to its part of each GPU; a refusal is logged."""
        group = self._groups.unified(str(task))
        if group is None or not group.is_dir() or not parts_mib or not self.available():
            return
        try:
            for uuid, mib in parts_mib.items():
                if not self._driver.holds(group, uuid, mib):
                    self._driver.limit(group, uuid, mib)
        except MemoryLimitError as error:
            self.refusal = str(error)
            _log.warning("GPU memory of task %s is not limited by the driver: %s", task, error)
        else:
            self.refusal = ""


class GpuMemory:
    """Keeps tasks with a fraction of a GPU within their memory.

    Args:
        enabled: whether fractions are limited at all.
        find: where the library is; raises ``NoLibrary``. It is called once, and may compile.
        preload: the file in which the dynamic linker finds what every program loads.
        driver: limits that the driver keeps, too; ``None``: none.
    """

    def __init__(
        self,
        *,
        enabled: bool = True,
        find: Callable[[], Path] = find_library,
        preload: Path = PRELOAD,
        driver: DriverLimits | None = None,
    ) -> None:
        self._find, self._preload = find, preload
        self._library: Path | None = None
        self._enabled, self._refusal = enabled, "" if enabled else OFF
        self._driver = driver if enabled else None
        self._by_file = True

    def summary(self) -> str:
        """What limits fractions, for the admin; the first call may compile."""
        by_driver = self._driver is not None and self._driver.available()
        names = [LIMITER] * (self._ready() is not None) + [DRIVER_LIMIT] * by_driver
        if not names:
            return self._refusal
        refusal = self._driver.refusal if self._driver is not None else ""
        return fractions_kept_by(*names) + limit_refused(refusal)

    def parts(self, task: TaskSpec) -> dict[str, int]:
        """MiB that the task may have of each GPU, by UUID; none for whole and simulated GPUs."""
        if not self._enabled or not task.gpu_memory_mib or task.mig_slots:
            return {}
        return dict.fromkeys(task.device_uuids, task.gpu_memory_mib)

    def applies(self, task: TaskSpec) -> bool:
        """Whether the task is to be limited and can be."""
        if not self.parts(task):
            return False
        by_driver = self._driver is not None and self._driver.available()
        return by_driver or self._ready() is not None

    def limit_group(self, task: TaskId, parts_mib: Mapping[str, int]) -> None:
        """Have the driver limit a task, whose control group is there, to its parts."""
        if self._driver is not None:
            self._driver.limit(task, parts_mib)

    def _preloaded(self, task: TaskSpec) -> Path | None:
        """The library for the task's programs; ``None`` where they load none."""
        return self._ready() if self.parts(task) else None

    def _ready(self) -> Path | None:
        if self._library is None and not self._refusal:
            try:
                self._library = self._find()
            except NoLibrary as error:
                self._refusal = (
                    "Fractions of GPUs are scheduled, but not kept within their part of the memory:"
                    f" {error}."
                )
                _log.warning("The limiter of GPU memory is missing: %s.", error)
        return self._library

    def prepare(self, building: Path, task: TaskSpec, account: Account) -> None:
        """Write the limiter's files into the task's folder, where the task itself cannot go."""
        if self._preloaded(task) is None:
            return
        folder = building / "gpu"
        folder.mkdir(mode=0o700)
        limits = limits_text(self.parts(task))
        write_whole(folder / "limits", limits.encode(), mode=0o644)
        owner = None if account.shared else (account.uid, account.gid)
        prepare_usage(folder / "usage", owner)
        if not account.shared:
            self._by_file = self._make_preload()
            before = self._preload.read_text() if self._by_file else ""
            text = f"{before.rstrip()}\n{FOLDER}/{LIBRARY.name}\n".lstrip()
            write_whole(folder / "preload", text.encode(), mode=0o644)

    def _make_preload(self) -> bool:
        """Have the machine a file to mount over: an empty one changes nothing for its programs."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            os.close(os.open(self._preload, flags, 0o644))
        except FileExistsError:
            return True
        except OSError as error:
            _log.warning(
                "%s cannot be made (%s): the limiter of GPU memory is named in the environment of"
                " tasks, where programs can clear it",
                self._preload,
                error.strerror,
            )
            return False
        return True

    def binds(self, task: TaskSpec, folder: Path) -> list[tuple[str, str, bool]]:
        """The mounts of the limiter in a task's sandbox: (source, target, read-only)."""
        library = self._preloaded(task)
        if library is None:
            return []
        own = folder.parent.resolve() / folder.name / "gpu"
        shown = [
            (str(own / "limits"), f"{FOLDER}/limits", True),
            (str(own / "usage"), f"{FOLDER}/usage", False),
            (os.path.realpath(library), f"{FOLDER}/{LIBRARY.name}", True),
        ]
        if self._by_file:
            shown.append((str(own / "preload"), os.path.realpath(self._preload), True))
        return shown

    def environment(self, task: TaskSpec, account: Account, folder: Path) -> dict[str, str]:
        """The variables that load the limiter where no file does."""
        library = self._preloaded(task)
        if library is None:
            return {}
        if account.shared:
            place = {"CARREL_GPU_LIMIT_FOLDER": str(folder / "gpu")}
        elif not self._by_file:
            library, place = Path(FOLDER, LIBRARY.name), {}
        else:
            return {}
        asked = task.secret_environment.get("LD_PRELOAD") or task.environment.get("LD_PRELOAD", "")
        return {**place, "LD_PRELOAD": f"{library}:{asked}".rstrip(":")}


class DriverMemory:
    """GPU memory that the driver takes for a task besides its allocations: contexts, code, buffers.

    It counts in their part, so the limiter is told. It is what NVML says of a task's processes less
    what they say of themselves at that moment; of ``LOOKS`` looks the least counts, because memory
    that was just freed or taken may be in one and not in the other.

    Args:
        folder: of a task.
    """

    def __init__(self, folder: Callable[[TaskId], Path]) -> None:
        self._folder = folder
        self._seen: dict[TaskId, deque[int]] = {}

    def note(self, tasks: Iterable[TaskStatus], use: Sequence[DeviceUse]) -> None:
        """Tell the limiters; ``use`` was measured just now, its owners are pids of tasks."""
        held = {
            (one.owner, device.index): one.memory_used_mib
            for device in use
            for one in device.owners
        }
        found: dict[TaskId, deque[int]] = {}
        for task in tasks:
            usage = self._folder(task.id) / "gpu" / "usage"
            known = [held[key] for index in task.devices if (key := (str(task.pid), index)) in held]
            if task.phase is not TaskPhase.RUNNING or not known or not usage.exists():
                continue
            looks = found[task.id] = self._seen.get(task.id, deque(maxlen=LOOKS))
            looks.append(max(0, sum(known) - sum(read_usage(usage)[:1])))
            if len(looks) == LOOKS:
                _tell(usage, min(looks))
        self._seen = found


def _tell(usage: Path, overhead_mib: int) -> None:
    try:
        write_overhead(usage, [overhead_mib])
    except OSError as error:
        _log.warning("the driver's memory cannot be written for %s: %s", usage, error.strerror)
