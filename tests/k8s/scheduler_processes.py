"""The whole scheduler as a process of its own, with faults that are set at its start.

Tests fork it (``SchedulerForkServer``), change its faults while it runs, and end it.
"""

import mmap
import struct
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.forking import ForkedProcess, ForkServer

LEASE_SECONDS: Final = 3.0
_LAYOUT: Final = struct.Struct("d?")


class FaultScript(msgspec.Struct, frozen=True):
    """The settings and faults of one process, given at its start.

    Attributes:
        kubeconfig: how it reaches the API server.
        state_dir: its state folder, which the next process of the same replica has, too.
        database: shared by all replicas.
        namespace: of the lease.
        hub_url: of the Hub's API, which knows who may make work.
        number: of this process.
        seed: of the random faults.
        kill_at, after, trouble: see ``Faults``.
    """

    kubeconfig: str
    state_dir: str
    database: str
    namespace: str
    hub_url: str
    number: int
    seed: int
    kill_at: int | None = None
    after: bool = False
    trouble: float = 0.0

    @property
    def kill_file(self) -> Path:
        """The file in which a process that is killed at a write names the write."""
        return Path(self.state_dir) / f"killed-{self.number}"

    @property
    def log(self) -> Path:
        """The file of its log."""
        return Path(self.state_dir) / f"log-{self.number}"

    @property
    def control(self) -> Path:
        """The file of its ``FaultControl``."""
        return Path(self.state_dir) / f"control-{self.number}"


class FaultControl:
    """Shared memory that changes the faults of a running process: its clock, and their end."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @property
    def jump(self) -> float:
        """The seconds by which its clock is ahead."""
        return float(_LAYOUT.unpack(self._memory[: _LAYOUT.size])[0])

    @property
    def over(self) -> bool:
        """Whether there are no more faults."""
        return bool(_LAYOUT.unpack(self._memory[: _LAYOUT.size])[1])

    def change(self, *, jump: float | None = None, over: bool | None = None) -> None:
        """Change the values that are given."""
        values = (self.jump if jump is None else jump, self.over if over is None else over)
        self._memory[: _LAYOUT.size] = _LAYOUT.pack(*values)


class ForkedScheduler(ForkedProcess):
    """A forked scheduler, as its tests see it."""

    def __init__(self, script: FaultScript, pid: int) -> None:
        super().__init__(pid)
        self.script = script
        self.control = FaultControl(script.control)

    @property
    def killed_at(self) -> str:
        """The write at which it was killed; empty where it was not."""
        return self.script.kill_file.read_text() if self.script.kill_file.exists() else ""


class SchedulerForkServer(ForkServer):
    """The fork server of the schedulers."""

    def __init__(self) -> None:
        super().__init__("k8s.scheduler_fork_server")

    def fork(self, script: FaultScript) -> ForkedScheduler:
        """Fork a scheduler."""
        FaultControl(script.control)
        return ForkedScheduler(script, self.begin(msgspec.json.encode(script)))
