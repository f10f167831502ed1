"""The state folder of the local engine, and the state of a task from the files of its folder.

``tasks/<workload>/<index>-<attempt>/`` is the record of one task: ``lock``, ``task.json``,
``pid.json``, ``exit.json``, ``stop``, ``control``, ``log/`` and ``work/``, the only part that the
task itself sees. ``checkpoints/<workload>/``, ``artifacts/<workload>/`` and ``events/<workload>/``
outlive attempts, ``copies/<uid>/`` (models, kept checkpoints) and ``homes/<user>/`` outlive all.

The lock decides: held means that a supervisor runs. Not held, ``exit.json`` has the end; without
that file nobody saw the end and the task is lost. The lock is tested before the file is read,
because a supervisor writes the file before it releases the lock.
"""

import contextlib
import fcntl
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskPhase, TaskStatus
from carrel_scheduler.engines.local.shim import process_tree
from carrel_schema.objects import LossCause

log = logging.getLogger(__name__)
T = TypeVar("T")
LOST: Final = "nobody saw how it ended: its supervisor was killed"
RESTARTED: Final = "its machine was restarted"
NEVER_RAN: Final = "it never ran: the scheduler was interrupted while starting it"


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``task.json``: what a scheduler needs to adopt the task. No secrets.

    ``gpu_parts_mib`` is how much it may have of the memory of each GPU that it shares, by UUID.
    """

    name: str
    project: str
    user: str
    node: str
    uid: int
    gid: int
    shared: bool
    groups: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    memory_mib: int = 0
    working_dir: str = ""
    address: str = ""
    image: str = ""
    mig_instance: str = ""
    gpu_parts_mib: dict[str, int] = {}


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """``pid.json``, written by the supervisor before the task's first instruction.

    Attributes:
        init: first process of its sandbox; 0 when it has none.
        init_start: when that began.
    """

    pid: int
    start_time: int
    boot_id: str
    started_at: float
    supervisor: int
    init: int = 0
    init_start: int = 0


class TaskExit(msgspec.Struct, frozen=True, kw_only=True):
    """``exit.json``."""

    exit_code: int | None
    signal: int
    ended_at: float
    message: str = ""
    last_output: str = ""
    oom_kills: int = 0
    lost: bool = False
    loss: LossCause = ""


class Lock:
    """The lock of a task's folder."""

    @staticmethod
    def held(folder: Path) -> bool:
        """Whether a supervisor holds it, or a scheduler that is about to start one."""
        try:
            descriptor = os.open(f"{folder}/lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two tests at once do not take each other for a supervisor.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @staticmethod
    def take(folder: Path) -> int:
        """Make the lock file of a new folder; returns the descriptor that holds the lock."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(folder / "lock", flags, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor


def read_record(folder: Path) -> TaskRecord:
    """``task.json``. Raises ``EngineError`` if it is damaged, as after a crash of the machine."""
    record = _decoded(folder, "task.json", TaskRecord)
    if record is None:
        raise EngineError(f"{folder}/task.json is missing or damaged")
    return record


def read_started(folder: Path) -> Started | None:
    """The content of ``pid.json``, once it exists."""
    return _decoded(folder, "pid.json", Started)


def read_ended(folder: Path) -> TaskExit | None:
    """The content of ``exit.json``, once it exists."""
    return _decoded(folder, "exit.json", TaskExit)


def _decoded(folder: Path, name: str, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(_read(folder, name), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        log.warning("%s/%s is damaged and left out: %s", folder, name, error)
        return None


def _read(folder: Path, name: str) -> bytes:
    """Read a small file without ``pathlib``: each start reads several on the event loop."""
    descriptor = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def read_status(folder: Path, task: TaskId) -> TaskStatus | None:
    """The state of a task; ``None`` when it is lost and the loss is not yet recorded."""
    held = Lock.held(folder)
    ended = read_ended(folder)
    if ended is None and not held:
        return None
    status = described(folder, TaskStatus(id=task, phase=TaskPhase.STARTING, node=""))
    if ended is None:
        return status
    return msgspec.structs.replace(
        status,
        phase=TaskPhase.ENDED,
        ended_at=ended.ended_at,
        exit_code=ended.exit_code,
        signal=ended.signal,
        message=ended.message or _memory_message(ended, folder),
        last_output=ended.last_output,
        lost=ended.lost,
        loss=ended.loss,
    )


def described(folder: Path, status: TaskStatus) -> TaskStatus:
    """The status, completed by the folder's files about the task's start and devices."""
    started, record = read_started(folder), _decoded(folder, "task.json", TaskRecord)
    if record is not None:
        status = msgspec.structs.replace(
            status, node=record.node, devices=record.devices, address=record.address
        )
    if started is not None:
        status = msgspec.structs.replace(
            status, phase=TaskPhase.RUNNING, pid=started.pid, started_at=started.started_at
        )
    return status


def _memory_message(ended: TaskExit, folder: Path) -> str:
    if ended.oom_kills == 0 or ended.exit_code == 0:
        return ""
    record = _decoded(folder, "task.json", TaskRecord)
    its = "memory" if record is None else f"{record.memory_mib} MiB"
    return f"killed for memory: it used more than its {its}"


def record_loss(folder: Path, now: float) -> None:
    """Record that a task was lost; call it once none of its processes is left."""
    started = read_started(folder)
    restarted = started is not None and started.boot_id != process_tree.boot_id()
    message = LOST if started else NEVER_RAN
    ended = TaskExit(
        exit_code=None,
        signal=0,
        ended_at=now,
        message=RESTARTED if restarted else message,
        lost=True,
        loss="node" if restarted else "",
    )
    write_whole(folder / "exit.json", msgspec.json.encode(ended), sync=True)


PRIVATE = 0o700
HALF_MADE_SECONDS = 600
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_FOLDER = re.compile(r"(\d{1,9})-(\d{1,9})")


class StateLayout:
    """Paths below the engine's state folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.tasks = self.root / "tasks"
        self.checkpoints = self.root / "checkpoints"
        self.artifacts = self.root / "artifacts"
        self.copies = self.root / "copies"
        self.events = self.root / "events"
        self.building = self.root / "building"
        self.trash = self.root / "trash"
        self.accounts = self.root / "accounts"

    def make(self) -> None:
        """Create the folders (mode 0700). Raises ``EngineError`` naming the path that failed."""
        try:
            self.root.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self.root.chmod(PRIVATE)
            for part in (self.tasks, self.events, self.building, self.trash, self.accounts):
                part.mkdir(mode=PRIVATE, exist_ok=True)
            for part in (self.checkpoints, self.artifacts, self.copies):
                part.mkdir(mode=PRIVATE, exist_ok=True)
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
        """The tasks that were started and have not been removed."""
        for workload in os.scandir(self.tasks):
            if _UID.fullmatch(workload.name) and workload.is_dir():
                yield from self.attempts(workload.name)

    def attempts(self, uid: str) -> Iterator[TaskId]:
        """The tasks of one workload; empty for an unknown one."""
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
        """Delete folders that an interrupted scheduler left incomplete."""
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
