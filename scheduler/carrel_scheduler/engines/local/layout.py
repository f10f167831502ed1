"""The state folder of the local engine, and writing files atomically.

``tasks/<workload>/<index>-<attempt>/`` is the record of one task: ``lock``, ``task.json``,
``pid.json``, ``exit.json``, ``stop``, ``control``, ``log/`` and ``work/``, the only part that the
task itself sees. ``checkpoints/<workload>/`` and ``events/<workload>/`` outlive attempts,
``homes/<user>/`` outlives all.
"""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from carrel_scheduler.engines.contract import EngineError, TaskId

PRIVATE = 0o700
HALF_MADE_SECONDS = 600
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_FOLDER = re.compile(r"(\d{1,9})-(\d{1,9})")


class Layout:
    """Paths below the engine's state folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.tasks = self.root / "tasks"
        self.checkpoints = self.root / "checkpoints"
        self.events = self.root / "events"
        self.building = self.root / "building"
        self.trash = self.root / "trash"
        self.accounts = self.root / "accounts"

    def make(self) -> None:
        """Create the folders (mode 0700). Raises ``EngineError`` naming what cannot be written."""
        try:
            self.root.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self.root.chmod(PRIVATE)
            for part in (self.tasks, self.checkpoints, self.events, self.building, self.trash):
                part.mkdir(mode=PRIVATE, exist_ok=True)
            self.accounts.mkdir(mode=PRIVATE, exist_ok=True)
        except OSError as error:
            message = f"the state folder {self.root} cannot be used: {error.strerror}"
            raise EngineError(message) from error

    def workload(self, uid: str) -> Path:
        """Folder of all attempts. Raises ``EngineError`` for a uid unfit as a name."""
        if not _UID.fullmatch(uid):
            raise EngineError(f"workload_uid={uid!r}: letters, digits, '.', '_' and '-' are right")
        return self.tasks / uid

    def task(self, task: TaskId) -> Path:
        """Record folder of a task."""
        if task.index < 0 or task.attempt < 0:
            raise EngineError(f"task {task}: index and attempt count from 0")
        return self.workload(task.workload_uid) / f"{task.index}-{task.attempt}"

    def recorded(self) -> Iterator[TaskId]:
        """Every task that was ever started and not removed since."""
        for workload in os.scandir(self.tasks):
            if _UID.fullmatch(workload.name) and workload.is_dir():
                yield from self.attempts(workload.name)

    def attempts(self, uid: str) -> Iterator[TaskId]:
        """The tasks of one workload; none when it is unknown."""
        try:
            names = [entry.name for entry in os.scandir(self.workload(uid))]
        except FileNotFoundError:
            return
        for name in names:
            if match := _FOLDER.fullmatch(name):
                yield TaskId(uid, int(match[1]), int(match[2]))

    def discard(self, folder: Path) -> None:
        """Move a folder away at once, then delete it."""
        if not folder.exists():
            return
        trash = Path(tempfile.mkdtemp(dir=self.trash))
        with contextlib.suppress(FileNotFoundError):  # discarded by another scheduler
            folder.rename(trash / folder.name)
        remove_tree(trash)

    def sweep(self, now: float) -> None:
        """Delete folders that an interrupted scheduler left half made or half deleted."""
        for place in (self.building, self.trash):
            for folder in place.iterdir():
                if now - folder.stat().st_mtime > HALF_MADE_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)


def remove_tree(folder: Path) -> None:
    """Delete a folder, also while another scheduler does."""
    while folder.exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def write_whole(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write a file atomically: a reader sees the old content or the new one."""
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        if sync:
            file.flush()
            os.fsync(descriptor)
    Path(fresh).rename(path)
