"""A fork server: a process that has imported everything forks others, which start at once.

Forked processes end with it, and it with the process that started it.
"""

import asyncio
import ctypes
import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Final, NoReturn, Self

_DIE_WITH_PARENT: Final = 1
END_SECONDS: Final = 30.0


def fork_for_each_line(run: Callable[[bytes], None]) -> None:
    """Run a fork server: for each line of input it forks a process, and prints its pid."""
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    for line in sys.stdin.buffer:
        pid = os.fork()
        if not pid:
            _run_child(run, line)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _run_child(run: Callable[[bytes], None], line: bytes) -> NoReturn:
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    run(line)
    sys.exit()


def redirect_output(log: str) -> None:
    """Redirect the output of this process to a file, and close its input."""
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(said, 1)
    os.dup2(said, 2)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


class ForkedProcess:
    """A forked process; it is no child of the caller, who knows it by a descriptor."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._process = os.pidfd_open(pid)
        except ProcessLookupError:
            self._process = -1

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process < 0 or bool(select.select([self._process], [], [], 0)[0])

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if not self.ended:
            signal.pidfd_send_signal(self._process, number)

    async def wait(self, seconds: float) -> None:
        """Wait until it has ended, or the time is over."""
        if not self.ended:
            await asyncio.to_thread(select.select, [self._process], [], [], seconds)

    async def end(
        self, number: signal.Signals = signal.SIGKILL, seconds: float = END_SECONDS
    ) -> None:
        """Send it a signal and wait for its end. Raises ``TimeoutError``."""
        self.send(number)
        await self.wait(seconds)
        if not self.ended:
            raise TimeoutError(f"process {self.pid} does not end")
        if self._process >= 0:
            os.close(self._process)
            self._process = -1


class ForkServer:
    """A running fork server.

    Args:
        module: run as a program, it is to ``fork_for_each_line``.
    """

    def __init__(self, module: str) -> None:
        # What this process imports, those do: it may be another tree than the installed one.
        folders = os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": folders},
        )

    def begin(self, line: bytes) -> int:
        """Fork a process for a line, which has no line break; returns its pid."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and every process with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(END_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
