"""Runs the parts, restarts one that ends or stops answering, and stops them together.

All parts are in one process group of their own: Ctrl-C in the terminal reaches `carrel up` alone,
which stops them in good order, and whatever is left at the end is killed as a group.
Listening sockets are its own and are handed to each process of a part that is started.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from carrel_hub.up.checks import StartupError
from carrel_hub.up.parts import ProcessPart
from carrel_hub.up.ports import Gate
from carrel_hub.up.probes import LONGEST_UNRESPONSIVE_SECONDS, UNRESPONSIVE_SECONDS, Watchdog

PDEATHSIG: Final = Path(__file__).with_name("pdeathsig.py")
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 15.0
TERMINATE_SECONDS: Final = 2.0
ROTATE_SECONDS: Final = 30.0
MOST_LOG_BYTES: Final = 16 * 1024 * 1024


class Supervisor:
    """The children of `carrel up`. Used from one event loop.

    Args:
        say: told in a sentence what goes wrong and what is done about it.
    """

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say
        self._running: dict[str, Process] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._gates: dict[str, Gate] = {}
        self._group = 0
        self._stopping = False

    async def start(self, part: ProcessPart) -> None:
        """Start a part. Raises ``StartupError`` if its command cannot be run."""
        self._shut_gate(part)
        self._running[part.name] = await self._spawn(part)

    def add_gate(self, part: ProcessPart, gate: Gate) -> None:
        """Hold new connections back at each of its starts until it is ready."""
        self._gates[part.name] = gate
        self._watchers.append(asyncio.create_task(gate.open_when_ready()))

    def _shut_gate(self, part: ProcessPart) -> None:
        gate = self._gates.get(part.name)
        if gate is not None:
            gate.shut()

    def check(self, part: ProcessPart) -> None:
        """Raise ``StartupError`` if a starting part has already ended."""
        process = self._running[part.name]
        if process.returncode is not None:
            raise StartupError(
                f"{part.shown} ended at its start (exit code {process.returncode}): "
                f"{last_line(part.log)} The whole log: {part.log}"
            )

    def keep_running(self, part: ProcessPart, watchdog: Watchdog) -> None:
        """Restart the part from now on when it ends or stops answering."""
        self._watchers.append(asyncio.create_task(self._watch(part, watchdog)))

    def rotate_log(self, part: ProcessPart, log: Path) -> None:
        """Rotate a log that a part writes itself when it is large; SIGUSR1 has it reopened."""
        self._watchers.append(asyncio.create_task(self._rotate(part, log)))

    async def stop(self) -> None:
        """Stop all parts, wait, and kill those that are left."""
        self._stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        alive = [one for one in self._running.values() if one.returncode is None]
        for process in alive:
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*(process.wait() for process in alive))
        self._kill_group()
        await asyncio.gather(*(process.wait() for process in alive))

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._group:
                os.killpg(self._group, signal.SIGKILL)

    async def _watch(self, part: ProcessPart, watchdog: Watchdog) -> None:
        """Restart a part after each end, with a growing back-off."""
        loop = asyncio.get_running_loop()
        pause, timeout = FIRST_PAUSE_SECONDS, UNRESPONSIVE_SECONDS
        while not self._stopping:
            began = loop.time()
            process = self._running[part.name]
            silent = await _ended_or_unresponsive(process, watchdog.until_unresponsive(timeout))
            if loop.time() - began > STEADY_SECONDS + timeout:
                pause, timeout = FIRST_PAUSE_SECONDS, UNRESPONSIVE_SECONDS
            if silent:
                self._say(f"{part.shown} runs but does not answer; it is started again.")
                timeout = min(timeout * 2, LONGEST_UNRESPONSIVE_SECONDS)
                await _end(process)
            self._shut_gate(part)
            pause = await self._start_again(part, pause)

    async def _rotate(self, part: ProcessPart, log: Path) -> None:
        while not self._stopping:
            await asyncio.sleep(ROTATE_SECONDS)
            if rotate(log):
                with contextlib.suppress(ProcessLookupError):  # a new process opens it anyway
                    self._running[part.name].send_signal(signal.SIGUSR1)

    async def _start_again(self, part: ProcessPart, pause: float) -> float:
        """Start it after ``pause`` seconds, and again until that works; returns the next pause."""
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            try:
                await self.start(part)
            except StartupError as error:
                self._say(f"{error} It is tried again in {pause:.1f} s.")
            else:
                return pause

    async def _spawn(self, part: ProcessPart) -> Process:
        sockets = ",".join(f"{name}={one.fileno()}" for name, one in part.listeners.items())
        wrapper = [sys.executable, "-I", "-S", str(PDEATHSIG), str(os.getpid()), sockets]
        command = [*wrapper, *part.command]
        try:
            rotate(part.log)
            with part.log.open("ab") as log:
                part.log.chmod(0o600)
                process = await self._in_group(command, part, log.fileno())
        except OSError as error:
            raise StartupError(f"{part.shown} cannot be started: {error}.") from error
        self._group = self._group or process.pid
        return process

    async def _in_group(self, command: list[str], part: ProcessPart, log: int) -> Process:
        """Start a process in the group of the others; in a new one when none of them is left."""
        for group in (self._group, 0):
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    env=dict(part.environment),
                    cwd=part.log.parent,
                    stdin=DEVNULL,
                    stdout=log,
                    stderr=STDOUT,
                    process_group=group,
                    pass_fds=[one.fileno() for one in part.listeners.values()],
                )
            except PermissionError:
                if group == 0:
                    raise
                continue
            if group == 0:
                self._group = process.pid
            return process
        raise AssertionError("a new group is always possible")


async def _ended_or_unresponsive(process: Process, silence: Coroutine[Any, Any, None]) -> bool:
    """Wait until a process ends or stops answering; true if it stopped answering."""
    end, silent = asyncio.create_task(process.wait()), asyncio.create_task(silence)
    try:
        await asyncio.wait({end, silent}, return_when=asyncio.FIRST_COMPLETED)
        if end.done():
            return False
        await silent
        return True
    finally:
        for task in (end, silent):
            task.cancel()
        await asyncio.gather(end, silent, return_exceptions=True)


async def _end(process: Process) -> None:
    """End one that does not answer; one that is stopped (SIGSTOP) takes no notice of SIGTERM."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERMINATE_SECONDS):
                await process.wait()
                return
        process.kill()
    await process.wait()


def rotate(log: Path, most_bytes: int = MOST_LOG_BYTES) -> bool:
    """Put a log that has grown large aside; one such is kept. Returns whether it had."""
    if not log.exists() or log.stat().st_size <= most_bytes:
        return False
    log.replace(log.with_name(f"{log.name}.1"))
    return True


def last_line(log: Path) -> str:
    """The last line of a log that says something, as a sentence of its own."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    said = next((line for line in reversed(lines) if line), "")
    return f"{said.rstrip('.')}." if said else "it said nothing."
