"""Finding out whether a replica can serve: its port accepts, or its readiness path answers.

One small task for each replica that is not ready yet. A replica that was ready stays so for its
run: who cannot be reached later is passed over by gateways, and who ends is replaced.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import aiohttp

from carrel_scheduler.backoff import Pauses

PAUSES: Final = Pauses(0.1, 1.0)
ANSWER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ReplicaRun:
    """A run of a replica."""

    uid: str
    attempt: int


class Prober:
    """See the module. ``changed`` gets the uid of the endpoint when a replica has become ready."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._ready: dict[str, set[ReplicaRun]] = {}
        self._tasks: dict[ReplicaRun, asyncio.Task[None]] = {}
        self._owner: dict[ReplicaRun, str] = {}
        self._session: aiohttp.ClientSession | None = None

    def ready(self, owner: str, run: ReplicaRun) -> bool:
        """Whether this run was found ready."""
        return run in self._ready.get(owner, ())

    def know(self, owner: str, run: ReplicaRun) -> None:
        """Record a replica that was ready before this process started."""
        self._ready.setdefault(owner, set()).add(run)

    def watch(self, owner: str, run: ReplicaRun, host: str, port: int, path: str) -> None:
        """Probe a replica until it is ready; no effect while it is being probed."""
        if run not in self._tasks and not self.ready(owner, run):
            self._owner[run] = owner
            self._tasks[run] = asyncio.create_task(self._look(owner, run, host, port, path))

    def keep_only(self, owner: str, runs: Collection[ReplicaRun]) -> None:
        """Forget all other runs of an endpoint."""
        for run in [one for one, whose in self._owner.items() if whose == owner]:
            if run not in runs:
                self._drop(run)
        if runs:
            self._ready[owner] = self._ready.get(owner, set()) & set(runs)
        else:
            self._ready.pop(owner, None)

    async def close(self) -> None:
        """Stop looking."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _drop(self, run: ReplicaRun) -> None:
        self._owner.pop(run, None)
        task = self._tasks.pop(run, None)
        if task is not None:
            task.cancel()

    async def _look(self, owner: str, run: ReplicaRun, host: str, port: int, path: str) -> None:
        for pause in PAUSES:
            if await self._answers(host, port, path):
                break
            await asyncio.sleep(pause)
        self.know(owner, run)
        self._tasks.pop(run, None)
        self._owner.pop(run, None)
        self._changed(owner)

    async def _answers(self, host: str, port: int, path: str) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if not path:
                    _, writer = await asyncio.open_connection(host, port)
                    writer.close()
                    return True
                url = f"http://{host}:{port}/{path.lstrip('/')}"
                async with self._http().get(url, allow_redirects=False) as answer:
                    return answer.status < 400
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session
