"""Follows the person's own work while a page of theirs is open, and only then.

One stream of events for the whole server, however many pages ask; pages ask for what is new in
memory here, which costs the scheduler nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.workspace.news import News

log = logging.getLogger("carrel.workspace")
UNWATCHED_SECONDS: Final = 90.0
FIRST_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 15.0


class Watch:
    """See the module.

    Args:
        client: speaks to the scheduler with the workspace's token.
        user: whose work; empty: asked of the scheduler.
        clock: epoch seconds.
    """

    def __init__(self, client: AsyncClient, user: str, clock: Callable[[], float]) -> None:
        self._client, self._user, self._clock = client, user, clock
        self._news = News(user, clock())
        self._asked_at = clock()
        self._known = asyncio.Event()
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None

    async def view(self, seen: str = "") -> dict[str, Any]:
        """What changed since ``seen`` (the ``seen`` of the answer before; empty: the first time).

        Holds ``seen`` only when nothing did. The first answer has no news: those are old.
        """
        self._asked_at = self._clock()
        if self._task is None or self._task.done():
            self._begin()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                await self._known.wait()
        news, name = self._news, f"{self._news.began:.3f}"
        now = f"{name}:{news.version}:{self._trouble}"
        if now == seen:
            return {"seen": now}
        life, _, rest = seen.partition(":")
        version = int(rest.partition(":")[0]) if life == name else news.version
        return {
            "seen": now,
            "jobs": news.jobs(),
            "news": news.since(version),
            "trouble": self._trouble,
        }

    async def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _begin(self) -> None:
        self._known.clear()
        self._news = News(self._user, self._clock())
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._watched:
            following = asyncio.create_task(self._follow())
            try:
                while not following.done() and self._watched:
                    await asyncio.wait({following}, timeout=UNWATCHED_SECONDS)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            if not following.cancelled():
                await asyncio.sleep(RETRY_SECONDS)

    @property
    def _watched(self) -> bool:
        return self._clock() - self._asked_at < UNWATCHED_SECONDS

    async def _follow(self) -> None:
        """Until the scheduler refuses, or was never there."""
        again = asyncio.Event()
        try:
            if not self._user:
                self._user = self._news.user = (await self._client.whoami()).user
            async with asyncio.TaskGroup() as group:
                group.create_task(self._list(again))
                group.create_task(self._hear(again))
        except* CarrelError as errors:
            self._trouble = str(errors.exceptions[0])
            log.info("Cannot follow the work of this workspace's owner: %s", self._trouble)
            self._known.set()

    async def _hear(self, again: asyncio.Event) -> None:
        async with aclosing(self._client.events(opened=again.set)) as events:
            async for event in events:
                self._news.take(event)

    async def _list(self, again: asyncio.Event) -> None:
        """Ask how everything stands whenever the stream does."""
        while True:
            await again.wait()
            again.clear()
            known = self._news.known
            self._news.take_all(await self._client.list_workloads(user=self._user), known)
            self._trouble = ""
            self._known.set()
