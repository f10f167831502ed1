"""The interface of engines: start, stop with a grace period, list, watch, logs and exec.

An engine owns processes (or pods) and nothing else. It never decides, never writes objects, and
may be asked the same thing twice: ``start`` of a task id that was ever started is refused with
``AlreadyStarted``, so a crash between deciding and recording can never run a task twice.
A task id is ``<workload uid>-<index>-<attempt>``; every new start of a workload is a new attempt.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from typing_extensions import override

from carrel_schema.governance.people import PosixIdentity
from carrel_schema.objects import LossCause

LATE_SECONDS: Final = 60.0
"""Seconds after its grace period from which a terminating task counts as stuck."""


class TaskPhase(StrEnum):
    """The state of a task in its engine."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class TaskId(msgspec.Struct, frozen=True, order=True):
    """The identity of one run of a task of a workload."""

    workload_uid: str
    index: int
    attempt: int

    @override
    def __str__(self) -> str:
        """The form used in paths and logs."""
        return f"{self.workload_uid}-{self.index}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "TaskId":
        """Read ``<uid>-<index>-<attempt>``; raises ``ValueError`` on anything else."""
        uid, index, attempt = text.rsplit("-", 2)
        return cls(uid, int(index), int(attempt))


class RegistryLogin(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials of a container registry; ``server`` as in images' names."""

    server: str
    username: str
    password: str


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification of a task for an engine.

    Attributes:
        devices: indices of the node's GPUs it may see; empty means none.
        device_uuids: the same devices by UUID, empty for simulated ones.
        environment: complete but for what the engine adds (PATH, HOME, device variables).
        secret_environment: the same, never shown or logged.
        registry_logins: credentials that its image may be pulled with, never shown or logged.
        files: relative path -> content, written into the task's folder before the start.
        volumes: (source, destination) paths; on one machine a relative destination lies in the
            task's folder, and an ordinary account is offered no other. On a cluster the source is
            a claim of the project, or ``claim/folder`` in it.
        read_only: sources of those volumes that the task may not write to.
        kind: of work, as ``training``.
        image: of its container; empty means the engine's default.
        posix: numbers that it runs under; ``None``: those that the engine gives its user.
        external: its pod is an external one, labelled with this id; the engine binds it to a node.
        gpu_milli: GPUs of it; a share of one GPU where it is less than 1000.
        gpu_memory_mib: with a share, how much of that GPU's memory is its own; 0: unknown.
        working_dir: empty means the task's own folder.
        cpu_milli: its share of the processors while others want them, too; idle ones it may use.
        cpu_limit_milli: never more than this; 0 means no such limit.
        mig_profile: of the MIG instance that it has in place of GPUs.
        mig_slots: on one machine, the memory slots of that instance on its device, as bits.
        memory_mib: never more than this; 0 means no limit.
        large_shm: its ``/dev/shm`` is not held to the 64 MiB that containers have by default.
        seen_as: its folder is seen at the path of that task's, too, so that paths of one member of
            a gang hold in all of them.
        hosts: (address, name) of others, which its programs can look up where users are kept apart.
        hostname, subdomain: on a cluster, the name under which others find it: ``hostname`` within
            ``subdomain``, which members of a gang share. Empty: it has no name.
        checkpoint_dir: kept over attempts of the workload; exported as ``CARREL_CHECKPOINT_DIR``.
        artifacts: it has a folder for what it keeps, exported as ``CARREL_ARTIFACTS``.
        continues: uid of other work of the user whose checkpoints it may read, or ``copies/uid`` of
            a kept one; exported as ``CARREL_CONTINUE_FROM`` where there are any.
        model: uid of the copy that it may read; exported as ``CARREL_MODEL``.
        events: where its event files go below those of all work: a uid, or ``uid/part``; exported
            whole as ``CARREL_EVENTS_DIR``. Empty: nowhere.
        reads_events: the same of other work whose event files it may read.
    """

    id: TaskId
    name: str
    project: str
    user: str
    node: str
    kind: str = "training"
    image: str = ""
    posix: PosixIdentity | None = None
    external: bool = False
    gpu_milli: int = 0
    gpu_memory_mib: int = 0
    devices: tuple[int, ...] = ()
    device_uuids: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    secret_environment: Mapping[str, str] = {}
    registry_logins: tuple[RegistryLogin, ...] = ()
    files: Mapping[str, str] = {}
    volumes: tuple[tuple[str, str], ...] = ()
    read_only: tuple[str, ...] = ()
    working_dir: str = ""
    seen_as: TaskId | None = None
    hosts: tuple[tuple[str, str], ...] = ()
    hostname: str = ""
    subdomain: str = ""
    checkpoint_dir: str = ""
    artifacts: bool = False
    continues: str = ""
    model: str = ""
    events: str = ""
    reads_events: tuple[str, ...] = ()
    cpu_milli: int = 0
    cpu_limit_milli: int = 0
    mig_profile: str = ""
    mig_slots: int = 0
    memory_mib: int = 0
    large_shm: bool = False
    grace_seconds: float = 30.0


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a task. Times are epoch seconds.

    Attributes:
        exit_code: of an ended task that exited by itself.
        signal: the signal number that ended it, else 0.
        message: why it could not start or was lost, else empty.
        last_output: of a task that failed, the end of its output, at most 2 KiB.
        lost: it ended and nothing recorded how (its supervisor was killed, the machine went
            down); such a task may be run again.
        loss: what went away under a lost task, where that is known.
        misplaced: it did not start because it could not run on that node then.
        address: where its servers listen for others, where it has an address of its own.
    """

    id: TaskId
    phase: TaskPhase
    node: str
    pid: int = 0
    started_at: float = 0.0
    ended_at: float = 0.0
    exit_code: int | None = None
    signal: int = 0
    message: str = ""
    last_output: str = ""
    lost: bool = False
    loss: LossCause = ""
    misplaced: bool = False
    devices: tuple[int, ...] = ()
    address: str = ""


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the output of a task.

    Attributes:
        index: of the task.
        attempt: ``None`` for the latest.
        tail_lines: at most this many of the last lines.
        since: lines begun then or later, in epoch seconds.
        timestamps: the time before each line (RFC 3339, UTC, microseconds).
        follow: go on with new output until the task ends.
    """

    index: int = 0
    attempt: int | None = None
    tail_lines: int | None = None
    since: float | None = None
    timestamps: bool = False
    follow: bool = False

    def choose(self, workload_uid: str, tasks: Iterable[TaskId]) -> TaskId:
        """The first of the workload's tasks, or the named one. Raises ``UnknownTask``."""
        wanted = [
            task
            for task in tasks
            if task.index == self.index and self.attempt in (None, task.attempt)
        ]
        if not wanted:
            which = "" if self.attempt is None else f", attempt {self.attempt}"
            raise UnknownTask(f"workload {workload_uid} has no log of task {self.index}{which}")
        return max(wanted)


class EngineError(Exception):
    """The engine could not do what was asked; the message says what and why."""


class AlreadyStarted(EngineError):  # noqa: N818 - an outcome to handle, not a mishap
    """This task id was started before; ``list`` has its state."""


class NotOnThisNode(EngineError):  # noqa: N818
    """The task cannot run on that node now and needs another placement."""


class TaskRefused(EngineError):  # noqa: N818
    """A task that this engine can never run.

    Attributes:
        code: a stable word of the API's.
        field: which field of the task it is.
        value: of that field.
        expected: what would be right, and why.
    """

    def __init__(self, code: str, field: str, value: Any, expected: str) -> None:
        super().__init__(f"{field}={value!r}: {expected}")
        self.code, self.field, self.value, self.expected = code, field, value, expected


class UnknownTask(EngineError):  # noqa: N818
    """The engine has no task of this id."""


class Stream(IntEnum):
    """The output streams of a command, by descriptor number."""

    OUTPUT = 1
    ERRORS = 2


@runtime_checkable
class ExecSession(Protocol):
    """A shell or command beside a running task, on a terminal."""

    async def read(self) -> bytes:
        """Next output; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write input."""
        ...

    async def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        ...

    async def close(self) -> int:
        """End the session (SIGHUP if it still runs); returns the exit code."""
        ...


class Engine(Protocol):
    """Runs tasks."""

    async def start(self, task: TaskSpec) -> None:
        """Start once. Raises ``AlreadyStarted`` or ``EngineError`` (then nothing runs)."""
        ...

    def interrupt_start(self, task: TaskId) -> None:
        """Have a start that waits for devices fail now, as its task is to end; else do nothing.

        The order to stop the task follows.
        """
        ...

    async def stop(self, task: TaskId, grace_seconds: float) -> None:
        """SIGTERM to the task's process group, SIGKILL after the grace period. Returns at once.

        Asking again with a shorter grace shortens it. An ended task is no error.
        """
        ...

    async def list(self) -> Sequence[TaskStatus]:
        """List the tasks whose record is still kept, running or ended."""
        ...

    def watch(self) -> AsyncIterator[TaskStatus]:
        """Yield changes of tasks as they happen, beginning after the call; never ends."""
        ...

    async def forget(self, task: TaskId) -> None:
        """Drop the record of an ended task; its logs stay until ``remove_workload``."""
        ...

    async def remove_workload(self, workload_uid: str) -> None:
        """Delete logs and folders of all attempts, not the checkpoints."""
        ...

    def logs(self, workload_uid: str, request: LogRequest) -> AsyncIterator[bytes]:
        """Output of one task. Raises ``UnknownTask`` at the first step."""
        ...

    async def exec(self, task: TaskId, command: Sequence[str]) -> ExecSession:
        """Run a command as the task's user, in its folder and environment, on a terminal."""
        ...

    async def close(self) -> None:
        """Release all resources; running tasks go on."""
        ...
