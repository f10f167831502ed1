"""Replicas of the scheduler that are started again and again, each behind a proxy of its own."""

import asyncio
import json
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from k8s.cluster.plane import ControlPlane
from k8s.proxy import Proxy
from k8s.scheduler_processes import LEASE_SECONDS, FaultScript, ForkedScheduler, SchedulerForkServer

WRITES: Final = 30
"""The number of writes of a process among which the one at which it is killed is drawn."""
CUTS: Final = (0.1, 0.5, 0.9)
DELAY_SECONDS: Final = 0.3


@dataclass
class SchedulerReplica:
    """A replica of the scheduler: its state folder, its proxy, and its present process.

    Attributes:
        name: of the replica.
        fork_server: where processes come from.
        plane: whose API server it uses; ``folder`` and ``database`` of the story.
        hub_url: of the Hub's API.
        process: the present process.
        kills: the writes at which earlier processes were killed.
    """

    name: str
    fork_server: SchedulerForkServer
    plane: ControlPlane
    folder: Path
    database: str
    namespace: str
    hub_url: str
    chance: random.Random
    process: ForkedScheduler | None = None
    kills: list[str] = field(default_factory=list)
    proxy: Proxy | None = None
    number: int = 0

    async def open(self) -> None:
        """Make the folder and start the proxy."""
        (self.folder / self.name).mkdir()
        self.proxy = Proxy(int(self.plane.url.rpartition(":")[2]), self.plane.authority)
        port = await self.proxy.start()
        path = self.plane.kubeconfig(self._kubeconfig)
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        path.write_text(json.dumps(config))

    @property
    def _kubeconfig(self) -> Path:
        return self.folder / f"{self.name}.kubeconfig"

    @property
    def ended(self) -> bool:
        """Whether there is no process."""
        return self.process is None or self.process.ended

    def start(self, *, faulty: bool) -> None:
        """Start a process; ``faulty``: with random faults."""
        script = FaultScript(
            str(self._kubeconfig),
            str(self.folder / self.name),
            self.database,
            self.namespace,
            self.hub_url,
            self.number,
            seed=self.chance.randrange(1 << 30),
            kill_at=self.chance.choice((None, *range(WRITES))) if faulty else None,
            after=self.chance.random() < 0.5,
            trouble=self.chance.choice((0.0, 0.0, 0.2, 0.4)) if faulty else 0.0,
        )
        self.number += 1
        self.process = self.fork_server.fork(script)

    async def kill(self) -> None:
        """Kill the process, if there is one."""
        if self.process is None:
            return
        await self.process.end()
        if self.process.killed_at:
            self.kills.append(self.process.killed_at)
        self.process = None

    async def await_kill(self, seconds: float) -> None:
        """Wait until a process that is to be killed at a write was killed."""
        if self.process is not None and self.process.script.kill_at is not None:
            await self.process.wait(seconds)

    def stop_faults(self) -> None:
        """End all faults."""
        assert self.proxy is not None
        self.proxy.delay, self.proxy.cut_watch = 0.0, None
        if self.process is not None:
            self.process.control.change(over=True)
            self.process.send(signal.SIGCONT)

    async def close(self) -> None:
        """Kill the process and stop the proxy."""
        await self.kill()
        if self.proxy is not None:
            await self.proxy.close()

    # Faults

    async def jump(self) -> None:
        """Set its clock an hour back or ahead, or right."""
        if self.process is not None:
            self.process.control.change(jump=self.chance.choice((-3600.0, 0.0, 3600.0)))

    async def cut(self) -> None:
        """Cut the connection within the next event of a watch."""
        assert self.proxy is not None
        self.proxy.cut_watch = self.chance.choice(CUTS)

    async def slow(self) -> None:
        """Delay what the server sends, or stop delaying it."""
        assert self.proxy is not None
        self.proxy.delay = DELAY_SECONDS - self.proxy.delay

    async def reset(self) -> None:
        """Break every connection."""
        assert self.proxy is not None
        self.proxy.cut()

    async def sleep(self) -> None:
        """Stop the process for longer than its lease lasts, and let it go on."""
        if self.process is not None:
            self.process.send(signal.SIGSTOP)
            await asyncio.sleep(LEASE_SECONDS * 2)
            self.process.send(signal.SIGCONT)
