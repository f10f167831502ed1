"""A scheduler as a process of its own, the whole service, under faults told at its start.

This is how tests see it: they have it born (``nursery``), tell it what goes wrong, and end it.
"""

import asyncio
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

import msgspec

LEASE_SECONDS: Final = 3.0
END_SECONDS: Final = 30.0
_TOLD: Final = struct.Struct("d?")


class Script(msgspec.Struct, frozen=True):
    """What a life is told at its start.

    Attributes:
        kubeconfig: how it reaches the API server.
        seat: its state folder, which the next life of the same seat has, too.
        database: of all seats.
        namespace: of the lease.
        number: of this life.
        seed: of what goes wrong by chance.
        kill_at, after, trouble: see ``Faults``.
    """

    kubeconfig: str
    seat: str
    database: str
    namespace: str
    number: int
    seed: int
    kill_at: int | None = None
    after: bool = False
    trouble: float = 0.0

    @property
    def words(self) -> Path:
        """Where a life that is killed at a write says at which."""
        return Path(self.seat) / f"words-{self.number}"

    @property
    def log(self) -> Path:
        """What it says meanwhile."""
        return Path(self.seat) / f"log-{self.number}"

    @property
    def told(self) -> Path:
        """What it is told meanwhile."""
        return Path(self.seat) / f"told-{self.number}"


class Telling:
    """What a life is told meanwhile: how far its clock is off, and whether faults are over."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_TOLD.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @property
    def jump(self) -> float:
        """Seconds that its clock is ahead."""
        return float(_TOLD.unpack(self._memory[: _TOLD.size])[0])

    @property
    def over(self) -> bool:
        """Whether nothing goes wrong any more."""
        return bool(_TOLD.unpack(self._memory[: _TOLD.size])[1])

    def tell(self, *, jump: float | None = None, over: bool | None = None) -> None:
        """Change it."""
        told = (self.jump if jump is None else jump, self.over if over is None else over)
        self._memory[: _TOLD.size] = _TOLD.pack(*told)


class Life:
    """One process, from outside."""

    def __init__(self, script: Script, pid: int) -> None:
        self.script = script
        self.telling = Telling(script.told)
        try:
            self._process = os.pidfd_open(pid)
        except ProcessLookupError:
            self._process = -1

    @property
    def ended(self) -> bool:
        """Whether it is no more."""
        return self._process < 0 or bool(select.select([self._process], [], [], 0)[0])

    @property
    def last_words(self) -> str:
        """The write at which it was killed; empty where it was not."""
        return self.script.words.read_text() if self.script.words.exists() else ""

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if not self.ended:
            signal.pidfd_send_signal(self._process, number)

    async def wait(self, seconds: float) -> None:
        """Until it is no more, or the time is over."""
        if not self.ended:
            await asyncio.to_thread(select.select, [self._process], [], [], seconds)

    async def end(self) -> None:
        """SIGKILL, and wait until it is no more."""
        self.send(signal.SIGKILL)
        if self._process >= 0:
            await self.wait(END_SECONDS)
            assert self.ended, "it does not end"
            os.close(self._process)
            self._process = -1


class Nursery:
    """Where lives come from."""

    def __init__(self) -> None:
        # What this process imports, its lives do: it may be another tree than the installed one.
        folders = os.pathsep.join(dict.fromkeys(path for path in sys.path if path))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "k8s.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": folders},
        )

    def begin(self, script: Script) -> Life:
        """A new life."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        Telling(script.told)
        self._process.stdin.write(msgspec.json.encode(script) + b"\n")
        self._process.stdin.flush()
        return Life(script, int(self._process.stdout.readline()))

    def close(self) -> None:
        """End it, and every life with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(END_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
