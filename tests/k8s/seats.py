"""Places that schedulers are started at again and again, each behind a proxy of its own."""

import asyncio
import json
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from k8s.cluster.plane import ControlPlane
from k8s.lives import LEASE_SECONDS, Life, Nursery, Script
from k8s.proxy import Proxy

WRITES: Final = 30
"""Among so many writes of a life the one at which it is killed is chosen."""
CUTS: Final = (0.1, 0.5, 0.9)
DELAY_SECONDS: Final = 0.3


@dataclass
class Seat:
    """One seat.

    Attributes:
        name: of the seat.
        nursery: where lives come from.
        plane: whose API server it uses; ``folder`` and ``database`` of the story.
        hub_url: of the Hub's API.
        life: the process that sits there.
        deaths: the writes at which earlier ones were killed.
    """

    name: str
    nursery: Nursery
    plane: ControlPlane
    folder: Path
    database: str
    namespace: str
    hub_url: str
    chance: random.Random
    life: Life | None = None
    deaths: list[str] = field(default_factory=list)
    proxy: Proxy | None = None
    number: int = 0

    async def open(self) -> None:
        """Get the proxy and the folder ready."""
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
        """Whether nobody sits there."""
        return self.life is None or self.life.ended

    def start(self, *, faulty: bool) -> None:
        """A new life; ``faulty``: with whatever goes wrong in it."""
        script = Script(
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
        self.life = self.nursery.bear(script)

    async def kill(self) -> None:
        """SIGKILL at whatever it is doing; nothing if it is dead."""
        if self.life is None:
            return
        await self.life.end()
        if self.life.last_words:
            self.deaths.append(self.life.last_words)
        self.life = None

    async def await_doom(self, seconds: float) -> None:
        """If the life there is to be killed at one of its writes: until it was."""
        if self.life is not None and self.life.script.kill_at is not None:
            await self.life.wait(seconds)

    def calm(self) -> None:
        """Nothing goes wrong from now on."""
        assert self.proxy is not None
        self.proxy.delay, self.proxy.cut_watch = 0.0, None
        if self.life is not None:
            self.life.telling.tell(over=True)
            self.life.send(signal.SIGCONT)

    async def close(self) -> None:
        """Nobody sits there any more."""
        await self.kill()
        if self.proxy is not None:
            await self.proxy.close()

    # What may go wrong

    async def jump(self) -> None:
        """Its clock is set."""
        if self.life is not None:
            self.life.telling.tell(jump=self.chance.choice((-3600.0, 0.0, 3600.0)))

    async def cut(self) -> None:
        """The next event of a watch comes in part only."""
        assert self.proxy is not None
        self.proxy.cut_watch = self.chance.choice(CUTS)

    async def slow(self) -> None:
        """What comes from the server comes late; or in time again."""
        assert self.proxy is not None
        self.proxy.delay = DELAY_SECONDS - self.proxy.delay

    async def reset(self) -> None:
        """Every connection breaks."""
        assert self.proxy is not None
        self.proxy.cut()

    async def sleep(self) -> None:
        """It stands still for longer than its lease lasts, and then goes on as if nothing was."""
        if self.life is not None:
            self.life.send(signal.SIGSTOP)
            await asyncio.sleep(LEASE_SECONDS * 2)
            self.life.send(signal.SIGCONT)
