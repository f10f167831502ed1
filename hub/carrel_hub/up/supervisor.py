"""Runs the parts, starts one again that dies, and stops them together.

All parts are in one process group of their own: Ctrl-C in the terminal reaches `carrel up` alone,
which stops them in good order, and whatever is left at the end is killed as a group.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from carrel_hub.up.parts import Part
from carrel_hub.up.trouble import Trouble

TIED: Final = Path(__file__).with_name("tied.py")
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 15.0
MOST_LOG_BYTES: Final = 16 * 1024 * 1024


class Supervisor:
    """The children of `carrel up`. Used from one event loop."""

    def __init__(self) -> None:
        self._running: dict[str, Process] = {}
        self._watchers: list[asyncio.Task[None]] = []
        self._group = 0
        self._stopping = False

    async def start(self, part: Part) -> None:
        """Start a part. Raises ``Trouble`` when its command cannot be run."""
        self._running[part.name] = await self._spawn(part)

    def check(self, part: Part) -> None:
        """Raise ``Trouble`` when a part that is starting has already ended."""
        process = self._running[part.name]
        if process.returncode is not None:
            raise Trouble(
                f"{part.shown} ended at its start (exit code {process.returncode}): "
                f"{last_line(part.log)} The whole log: {part.log}"
            )

    def keep_running(
        self, part: Part, revived: Callable[[Part], Awaitable[None]] | None = None
    ) -> None:
        """From now on start it again when it dies, and then call ``revived``."""
        self._watchers.append(asyncio.create_task(self._watch(part, revived)))

    async def stop(self) -> None:
        """Ask all to stop, wait, and kill what is left."""
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

    async def _watch(self, part: Part, revived: Callable[[Part], Awaitable[None]] | None) -> None:
        """Start it again after each end, soon at first, more slowly when it keeps dying."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping:
            began = loop.time()
            await self._running[part.name].wait()
            if loop.time() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            await self.start(part)
            if revived is not None:
                await revived(part)

    async def _spawn(self, part: Part) -> Process:
        command = [sys.executable, "-I", "-S", str(TIED), str(os.getpid()), *part.command]
        rotate(part.log)
        with part.log.open("ab") as log:
            part.log.chmod(0o600)
            try:
                process = await self._in_group(command, part, log.fileno())
            except OSError as error:
                raise Trouble(f"{part.shown} cannot be started: {error}.") from error
        self._group = self._group or process.pid
        return process

    async def _in_group(self, command: list[str], part: Part, log: int) -> Process:
        """In the group of the others; in a new one when none of them is left."""
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
                )
            except PermissionError:
                if group == 0:
                    raise
                continue
            if group == 0:
                self._group = process.pid
            return process
        raise AssertionError("a new group is always possible")


def rotate(log: Path, most_bytes: int = MOST_LOG_BYTES) -> None:
    """Put a log that has grown large aside; one such is kept."""
    if log.exists() and log.stat().st_size > most_bytes:
        log.replace(log.with_name(f"{log.name}.1"))


def last_line(log: Path) -> str:
    """The last line of a log that says something, as a sentence of its own."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    said = next((line for line in reversed(lines) if line), "")
    return f"{said.rstrip('.')}." if said else "it said nothing."
