"""A command beside a running task, on a pseudo-terminal.

Its environment and sandbox are those of the running task, so it needs nothing that was not
recorded, and no secret is stored for it.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import struct
import termios
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskId
from carrel_scheduler.engines.local.cgroups import Groups
from carrel_scheduler.engines.local.fork_server import shim_command
from carrel_scheduler.engines.local.shim import process_tree
from carrel_scheduler.engines.local.shim.job import Job
from carrel_scheduler.engines.local.task_state import Started, TaskRecord

HANG_UP_SECONDS: Final = 2.0
HANG_UP_AGAIN_SECONDS: Final = 0.1
EXEC_SECONDS: Final = 5.0
# The name takes the place of the machine's in whatever prompt the shell's own files set up.
_PROMPT: Final = r"PS1=${PS1//\\[hH]/$CARREL_PROMPT_HOST}"


class Terminal:
    """One session; see ``engines.contract.ExecSession``."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self._master, self._process = master, process
        self._waiting: set[asyncio.Future[None]] = set()
        os.set_blocking(master, False)

    async def read(self) -> bytes:
        """Next output; empty at the end."""
        while self._master >= 0:
            try:
                return os.read(self._master, 65536)
            except BlockingIOError:
                await self._ready(reading=True)
            except OSError as error:
                if error.errno == errno.EIO:  # the slave is closed
                    return b""
                raise
        return b""

    async def write(self, data: bytes) -> None:
        """Type. Raises ``EngineError`` after the end."""
        rest = data
        while rest:
            if self._master < 0:
                raise EngineError("the terminal session has ended")
            try:
                rest = rest[os.write(self._master, rest) :]
            except BlockingIOError:
                await self._ready(reading=False)
            except OSError as error:
                raise EngineError("the terminal session has ended") from error

    async def _ready(self, *, reading: bool) -> None:
        loop, master = asyncio.get_running_loop(), self._master
        ready: asyncio.Future[None] = loop.create_future()
        add, remove = (
            (loop.add_reader, loop.remove_reader)
            if reading
            else (loop.add_writer, loop.remove_writer)
        )
        self._waiting.add(ready)
        add(master, _wake, ready)
        try:
            await ready
        finally:
            self._waiting.discard(ready)
            if self._master == master:  # the number of a closed one may be another file's
                remove(master)

    async def resize(self, rows: int, columns: int) -> None:
        """Tell the size."""
        if not (0 < rows < 10_000 and 0 < columns < 10_000):
            raise EngineError(f"rows={rows}, columns={columns}: numbers from 1 to 9999 are right")
        if self._master >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def close(self) -> int:
        """Hang up if still running; returns the exit code (128 and the signal if one ended it)."""
        try:
            if self._process.returncode is None:
                await self._end()
            code = await self._process.wait()
        finally:
            self._close_master()
        return code if code >= 0 else 128 - code

    async def _end(self) -> None:
        """Hang up, and kill the processes that ignore it, also when the caller is cancelled."""
        try:
            async with asyncio.timeout(HANG_UP_SECONDS):
                await self._hang_up()
        except TimeoutError:
            self._signal(signal.SIGKILL)
        except asyncio.CancelledError:
            self._signal(signal.SIGKILL)
            raise

    def _close_master(self) -> None:
        """Close the master; pending reads and writes end."""
        if self._master < 0:
            return
        master, self._master = self._master, -1
        loop = asyncio.get_running_loop()
        loop.remove_reader(master)
        loop.remove_writer(master)
        for ready in self._waiting:
            _wake(ready)
        os.close(master)

    async def _hang_up(self) -> None:
        """Send SIGHUP repeatedly: under nohup a process that has just begun ignores it at first."""
        ended = asyncio.ensure_future(self._process.wait())
        try:
            while not ended.done():
                self._signal(signal.SIGHUP)
                self._signal(signal.SIGCONT)
                await asyncio.wait({ended}, timeout=HANG_UP_AGAIN_SECONDS)
        finally:
            ended.cancel()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def open_terminal(
    task: TaskId,
    record: TaskRecord,
    started: Started,
    groups: Groups,
    command: list[str],
    syscall_filter: bytes,
) -> Terminal:
    """Start a command (default: a shell) beside a task.

    Raises ``EngineError`` when the task does not run (any more).
    """
    environment = await _environment(task, started)
    environment["TERM"] = "xterm-256color"
    environment["CARREL_PROMPT_HOST"] = f"{record.name}-0-{task.index}"
    environment["PS1"] = r"\u@\h:\w\$ "
    environment["PROMPT_COMMAND"] = _PROMPT
    job = Job(
        task_id=str(task),
        folder="/",
        command=command or ["bash"],
        environment=environment,
        working_dir=record.working_dir or environment.get("CARREL_TASK_DIR", "/"),
        uid=-1 if record.shared else record.uid,
        gid=-1 if record.shared else record.gid,
        cgroups=groups.folders,
        syscall_filter=syscall_filter,
        sandbox=(started.init, started.init_start),
    )
    memory = job.to_memory()
    master, slave = os.openpty()
    try:
        if not record.shared:
            os.fchown(slave, record.uid, -1)
        process = await asyncio.create_subprocess_exec(
            *shim_command("child", memory),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd="/",
            env={},
            pass_fds=(memory,),
            start_new_session=True,
        )
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
        os.close(memory)
    return Terminal(master, process)


async def _environment(task: TaskId, started: Started) -> dict[str, str]:
    """The running task's own environment, once its command has taken over its process."""
    mark = f"CARREL_TASK_ID={task}".encode()
    deadline = asyncio.get_running_loop().time() + EXEC_SECONDS
    while process_tree.start_time(started.pid) == started.start_time:
        entries = process_tree.environment(started.pid)
        if mark in entries:
            pairs = [os.fsdecode(entry).partition("=") for entry in entries if entry]
            return {name: value for name, _, value in pairs}
        if asyncio.get_running_loop().time() > deadline:
            raise EngineError(f"task {task} does not begin to run")
        await asyncio.sleep(0.01)
    raise EngineError(f"task {task} is not running")
