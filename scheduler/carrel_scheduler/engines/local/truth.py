"""What became of a task, read from its folder alone.

The lock decides: held means that a supervisor looks after the task. Not held, ``exit.json`` tells
the end; without it nobody saw the end and the task is lost. The lock is asked before the file is
looked for, because a supervisor writes the file before it lets the lock go.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.engines.local.layout import write_whole

LOST: Final = "nobody saw how it ended: its supervisor was killed or the machine went down"
NEVER_RAN: Final = "it never ran: the scheduler was interrupted while starting it"


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``task.json``: what later schedulers must know of a task. No secrets."""

    name: str
    project: str
    user: str
    node: str
    uid: int
    gid: int
    shared: bool
    devices: tuple[int, ...] = ()
    memory_mib: int = 0
    working_dir: str = ""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """``pid.json``, written by the supervisor before the task's first instruction."""

    pid: int
    start_time: int
    boot_id: str
    started_at: float
    supervisor: int


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """``exit.json``."""

    exit_code: int | None
    signal: int
    ended_at: float
    message: str = ""
    oom_kills: int = 0
    lost: bool = False


class Lock:
    """The lock of a task's folder."""

    @staticmethod
    def held(folder: Path) -> bool:
        """Whether a supervisor (or a scheduler about to start one) holds it."""
        try:
            descriptor = os.open(f"{folder}/lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two who ask do not take each other for a supervisor.
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
    """``task.json``; it is there before the folder has its name."""
    return msgspec.json.decode(_read(folder, "task.json"), type=TaskRecord)


def read_started(folder: Path) -> Started | None:
    """``pid.json``, once there."""
    try:
        return msgspec.json.decode(_read(folder, "pid.json"), type=Started)
    except FileNotFoundError:
        return None


def read_ended(folder: Path) -> Ended | None:
    """``exit.json``, once there."""
    try:
        return msgspec.json.decode(_read(folder, "exit.json"), type=Ended)
    except FileNotFoundError:
        return None


def _read(folder: Path, name: str) -> bytes:
    """A small file, without the price of a path: each start reads several, on the event loop."""
    descriptor = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def read_status(folder: Path, task: TaskId) -> TaskStatus | None:
    """The state of a task; ``None`` when it is lost and nobody has said so yet."""
    held = Lock.held(folder)
    ended, started, record = read_ended(folder), read_started(folder), read_record(folder)
    if ended is None and not held:
        return None
    phase = TaskPhase.RUNNING if started else TaskPhase.STARTING
    status = TaskStatus(
        id=task,
        phase=phase,
        node=record.node,
        pid=started.pid if started else 0,
        started_at=started.started_at if started else 0.0,
        devices=record.devices,
    )
    if ended is None:
        return status
    return msgspec.structs.replace(
        status,
        phase=TaskPhase.ENDED,
        ended_at=ended.ended_at,
        exit_code=ended.exit_code,
        signal=ended.signal,
        message=ended.message or _memory_message(ended, record),
        lost=ended.lost,
    )


def _memory_message(ended: Ended, record: TaskRecord) -> str:
    if ended.oom_kills == 0 or ended.exit_code == 0:
        return ""
    return f"killed for memory: it used more than its {record.memory_mib} MiB"


def record_loss(folder: Path, now: float) -> None:
    """Write down that a task was lost; call once none of its processes is left."""
    started = read_started(folder)
    ended = Ended(
        exit_code=None,
        signal=0,
        ended_at=now,
        message=LOST if started else NEVER_RAN,
        lost=True,
    )
    write_whole(folder / "exit.json", msgspec.json.encode(ended), sync=True)
