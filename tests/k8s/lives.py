"""A scheduler as a process of its own, the whole service, under faults told at its start.

This is how tests see it: they have it born (``nursery``), tell it what goes wrong, and end it.
"""

import mmap
import struct
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.forking import Forked, Forking

LEASE_SECONDS: Final = 3.0
_TOLD: Final = struct.Struct("d?")


class Script(msgspec.Struct, frozen=True):
    """What a life is told at its start.

    Attributes:
        kubeconfig: how it reaches the API server.
        seat: its state folder, which the next life of the same seat has, too.
        database: of all seats.
        namespace: of the lease.
        hub_url: of the Hub's API, which knows who may make work.
        number: of this life.
        seed: of what goes wrong by chance.
        kill_at, after, trouble: see ``Faults``.
    """

    kubeconfig: str
    seat: str
    database: str
    namespace: str
    hub_url: str
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


class Life(Forked):
    """One process, from outside."""

    def __init__(self, script: Script, pid: int) -> None:
        super().__init__(pid)
        self.script = script
        self.telling = Telling(script.told)

    @property
    def last_words(self) -> str:
        """The write at which it was killed; empty where it was not."""
        return self.script.words.read_text() if self.script.words.exists() else ""


class Nursery(Forking):
    """Where lives come from."""

    def __init__(self) -> None:
        super().__init__("k8s.nursery")

    def bear(self, script: Script) -> Life:
        """A new life."""
        Telling(script.told)
        return Life(script, self.begin(msgspec.json.encode(script)))
