"""A real scheduler service as a child process, on a port and a state folder of its own."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import msgspec

from benchmarks.forking import ForkedProcess, ForkServer
from benchmarks.ports import free_port

START_SECONDS = 180.0
END_SECONDS = 60.0


class ForkRequest(msgspec.Struct, frozen=True):
    """A request to fork a scheduler: its whole environment, and the file of its log."""

    environment: dict[str, str]
    log: str


class SchedulerProcess:
    """Start it, kill it, start it again; tasks that it started live on.

    ``module`` is run, with ``more`` in its environment. ``fork_server`` forks it
    (``forked_schedulers``), so that it starts without importing everything again.
    """

    def __init__(
        self,
        state_dir: Path,
        hub_url: str,
        hub_token: str,
        *,
        gpus: int = 4,
        database_url: str = "",
        module: str = "carrel_scheduler.service",
        more: Mapping[str, str] | None = None,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.state_dir = state_dir
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/services/carrel"
        self.api = f"{self.url}/api/v1"
        self.log = state_dir / "scheduler.log"
        self.environment = {
            **os.environ,
            "CARREL_STATE_DIR": str(state_dir),
            "CARREL_DATABASE_URL": database_url,
            "CARREL_GPUS": str(gpus),
            "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{self.port}/",
            "JUPYTERHUB_SERVICE_PREFIX": "/services/carrel/",
            "JUPYTERHUB_API_URL": hub_url,
            "JUPYTERHUB_API_TOKEN": hub_token,
            **(more or {}),
        }
        self._module, self._fork_server = module, fork_server
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None

    async def start(self) -> None:
        """Start and return once the process exists; ``ready`` waits for its first answer."""
        if self._fork_server is not None:
            request = ForkRequest(self.environment, str(self.log))
            self._process = ForkedProcess(self._fork_server.begin(msgspec.json.encode(request)))
            return
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    async def ready(self, session: aiohttp.ClientSession) -> float:
        """Wait for an answer; returns how many seconds it took. Raises ``RuntimeError``."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while clock() - began < START_SECONDS:
            if self._process is None or _ended(self._process):
                break
            try:
                async with session.get(f"{self.api}/whoami") as answer:
                    if answer.status < 500:
                        return clock() - began
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)
        raise RuntimeError(f"the scheduler did not come up:\n{self.log.read_text()[-3000:]}")

    @property
    def pid(self) -> int:
        """The pid of the running process. Raises ``RuntimeError`` when there is none."""
        if self._process is None:
            raise RuntimeError("the scheduler was not started")
        return self._process.pid

    async def kill(self) -> None:
        """SIGKILL."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM, and wait."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        process = self._process
        if isinstance(process, ForkedProcess):
            await process.end(number, END_SECONDS)
        elif process is not None and not _ended(process):
            process.send_signal(number)
            await asyncio.wait_for(process.wait(), END_SECONDS)


def _ended(process: asyncio.subprocess.Process | ForkedProcess) -> bool:
    return process.ended if isinstance(process, ForkedProcess) else process.returncode is not None
