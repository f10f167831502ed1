"""A command beside a running task, on a pseudo-terminal or with pipes.

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
from dataclasses import dataclass
from typing import Any, Final

from carrel_scheduler.engines.contract import EngineError, Stream, TaskId
from carrel_scheduler.engines.local.cgroups import Groups
from carrel_scheduler.engines.local.fork_server import shim_command
from carrel_scheduler.engines.local.shim import process_tree
from carrel_scheduler.engines.local.shim.job import ShimTask
from carrel_scheduler.engines.local.task_state import Started, TaskRecord

HANG_UP_SECONDS: Final = 2.0
HANG_UP_AGAIN_SECONDS: Final = 0.1
EXEC_SECONDS: Final = 5.0
PIECE_BYTES: Final = 65_536
MOST_ERRORS_BYTES: Final = 2048
QUEUED_PIECES: Final = 4
LOOK_SECONDS: Final = 0.02
DRAIN_STEPS: Final = 5
DRAIN_SECONDS: Final = 0.5
"""Seconds for which output is awaited after a command ended: its children may hold it."""
# The name takes the place of the machine's in whatever prompt the shell's own files set up.
_PROMPT: Final = r"PS1=${PS1//\\[hH]/$CARREL_PROMPT_HOST}"


class LocalTerminal:
    """A terminal of a local task; see ``engines.contract.ExecSession``."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self._master, self._process = master, process
        self._exit = asyncio.create_task(process.wait())
        self._waiting: set[asyncio.Future[None]] = set()
        os.set_blocking(master, False)

    async def read(self) -> bytes:
        """The next output; empty when the command's output has ended.

        Processes that it left in the background may hold the terminal for long.
        """
        while self._master >= 0:
            try:
                return os.read(self._master, 65536)
            except BlockingIOError:
                if not await self._more():
                    return b""
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

    async def _more(self) -> bool:
        """Wait for output; false where the command has ended and nothing came for a while."""
        ready = asyncio.ensure_future(self._ready(reading=True))
        try:
            await asyncio.wait({ready, self._exit}, return_when=asyncio.FIRST_COMPLETED)
            await _drained(ready)
            return ready.done()
        finally:
            ready.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ready

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
        """Set the terminal's size."""
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


async def _exited(process: asyncio.subprocess.Process) -> None:
    """Wait for a command's own end; ``Process.wait`` waits for whoever holds its pipes, too."""
    while process.returncode is None:  # noqa: ASYNC110 - nothing is told of it before the pipes' end
        await asyncio.sleep(LOOK_SECONDS)


async def _drained(reading: asyncio.Future[Any]) -> None:
    """Read the rest of an ended command's output, for a limited time.

    In steps: where the machine was too busy to look for so long, what is there counts as late as
    the time does, and comes a few turns of the loop after it.
    """
    for _ in range(DRAIN_STEPS):
        await asyncio.wait({reading}, timeout=DRAIN_SECONDS / DRAIN_STEPS)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@dataclass(frozen=True, slots=True)
class Beside:
    """A running task, as far as a command beside it needs it.

    Attributes:
        groups: the control groups of the task.
        syscall_filter: that of its sandbox; empty for none.
    """

    task: TaskId
    record: TaskRecord
    started: Started
    groups: Groups
    syscall_filter: bytes

    def job(self, command: list[str], environment: dict[str, str]) -> ShimTask:
        """A command in the task's sandbox, limits and account."""
        record = self.record
        return ShimTask(
            task_id=str(self.task),
            folder="/",
            command=command,
            environment=environment,
            working_dir=record.working_dir or environment.get("CARREL_TASK_DIR", "/"),
            uid=-1 if record.shared else record.uid,
            gid=-1 if record.shared else record.gid,
            groups=record.groups,
            cgroups=self.groups.folders,
            syscall_filter=self.syscall_filter,
            sandbox=(self.started.init, self.started.init_start),
        )


async def open_terminal(beside: Beside, command: list[str]) -> LocalTerminal:
    """Start a command (default: a shell) beside a task.

    Raises ``EngineError`` when the task does not run (any more).
    """
    task, record = beside.task, beside.record
    environment = await _environment(task, beside.started)
    environment["TERM"] = "xterm-256color"
    environment["CARREL_PROMPT_HOST"] = f"{record.name}-0-{task.index}"
    environment["PS1"] = r"\u@\h:\w\$ "
    environment["PROMPT_COMMAND"] = _PROMPT
    memory = beside.job(command or ["bash"], environment).to_memory()
    master, slave = os.openpty()
    try:
        if not record.shared:
            os.fchown(slave, record.uid, -1)
        process = await _start(memory, slave, slave, slave)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
        os.close(memory)
    return LocalTerminal(master, process)


async def _start(memory: int, *streams: int) -> asyncio.subprocess.Process:
    """Start the shim of a command with these standard streams."""
    stdin, stdout, stderr = streams
    return await asyncio.create_subprocess_exec(
        *shim_command("child", memory),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd="/",
        env={},
        pass_fds=(memory,),
        start_new_session=True,
    )


class LocalPipedCommand:
    """A command with pipes; see ``engines.files.contract.CommandSession``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._pieces: asyncio.Queue[tuple[Stream, bytes]] = asyncio.Queue(QUEUED_PIECES)
        self._exit = asyncio.create_task(_exited(process))
        streams = ((Stream.OUTPUT, process.stdout), (Stream.ERRORS, process.stderr))
        self._passing = [
            asyncio.create_task(self._pass_on(stream, reader))
            for stream, reader in streams
            if reader is not None
        ]
        self._open = len(self._passing)
        self.errors = b""

    async def _pass_on(self, stream: Stream, reader: asyncio.StreamReader) -> None:
        while piece := await self._read_from(reader):
            await self._pieces.put((stream, piece))
        await self._pieces.put((stream, b""))

    async def _read_from(self, reader: asyncio.StreamReader) -> bytes:
        reading = asyncio.ensure_future(reader.read(PIECE_BYTES))
        try:
            await asyncio.wait({reading, self._exit}, return_when=asyncio.FIRST_COMPLETED)
            await _drained(reading)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()

    async def read(self) -> bytes:
        """The next output, without the error stream; empty at the end."""
        while True:
            stream, data = await self.read_piece()
            if stream is Stream.OUTPUT or not data:
                return data
            self.errors = (self.errors + data)[-MOST_ERRORS_BYTES:]

    async def read_piece(self) -> tuple[Stream, bytes]:
        """Next output of either stream; empty at the end."""
        while self._open:
            stream, piece = await self._pieces.get()
            if piece:
                return stream, piece
            self._open -= 1
        return Stream.OUTPUT, b""

    async def write(self, data: bytes) -> None:
        """Write input. Raises ``EngineError`` after the end."""
        try:
            if self._process.stdin:
                self._process.stdin.write(data)
                await self._process.stdin.drain()
        except ConnectionError as error:
            raise EngineError("the command takes no more input") from error

    async def end_input(self) -> None:
        """The command reads end of file."""
        if self._process.stdin:
            self._process.stdin.close()

    async def close(self) -> int:
        """End it if it still runs; returns the exit code (128 and the signal if one ended it)."""
        try:
            async with asyncio.timeout(0 if self._open else EXEC_SECONDS):
                await asyncio.shield(self._exit)
        except TimeoutError:
            await self._kill()
        for passing in self._passing:
            passing.cancel()
        # Pipes that others still hold would stay open here, and asyncio has no public way.
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def _kill(self) -> None:
        """Kill it and wait for its end.

        Methods of asyncio's that look whether it has ended, as ``kill`` and the closing of a
        transport do, take its exit code from whoever waits for it.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXEC_SECONDS):
                await asyncio.shield(self._exit)


async def open_command(beside: Beside, command: list[str]) -> LocalPipedCommand:
    """Start a command beside a task, without a terminal. Raises ``EngineError``."""
    environment = await _environment(beside.task, beside.started)
    memory = beside.job(command, environment).to_memory()
    pipe = asyncio.subprocess.PIPE
    try:
        return LocalPipedCommand(await _start(memory, pipe, pipe, pipe))
    finally:
        os.close(memory)


async def _environment(task: TaskId, started: Started) -> dict[str, str]:
    """The running task's environment, once its command has replaced its supervisor's program."""
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
