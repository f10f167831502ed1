"""Principals of tokens: asked of the Hub with the token itself, and cached for a while.

Tokens of tasks are the scheduler's, which is asked about them. A task may use what its user and
its project share, in its own project only.

A token has to carry the right to use this service, as with every service of the Hub. Groups come
from the same answer or, where the token may not read them, are asked with the gateway's own token.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec
from cachetools import TTLCache

from carrel.client.transport import Transport
from carrel.errors import ApiError, CarrelError
from carrel_hub.gateway.settings import GatewaySettings

REMEMBER_SECONDS: Final = 5.0
REMEMBER_AT_MOST: Final = 4096
ANSWER_SECONDS: Final = 10.0
# How the scheduler's tokens of tasks begin; the Hub's have no dots.
TASK_TOKEN: Final = "ct1."  # noqa: S105 - no secret
GROUP_PREFIX: Final = "project-"


class HubUnavailable(Exception):  # noqa: N818 - an outcome to handle
    """The Hub, or the scheduler for a task, did not answer: nobody knows whose token it is."""


class _TaskIdentity(msgspec.Struct):
    user: str
    project: str


@dataclass(frozen=True, slots=True)
class GatewayPrincipal:
    """An authenticated caller.

    Attributes:
        is_user: false for services of the Hub.
        within: the only project whose work a task may use; ``None`` for anybody else.
    """

    name: str
    is_user: bool
    projects: frozenset[str]
    scopes: frozenset[str]
    within: str | None = None

    def may_use(self, service: str) -> bool:
        """Whether the token is good for this service."""
        return self.within is not None or bool(
            self.scopes & {"access:services", f"access:services!service={service}"}
        )


class TokenReviewer:
    """Authenticates tokens. ``clock`` gives seconds, ``scheduler`` reaches its API."""

    def __init__(
        self,
        settings: GatewaySettings,
        session: aiohttp.ClientSession,
        clock: Callable[[], float],
        scheduler: Transport,
    ) -> None:
        self._settings, self._session, self._scheduler = settings, session, scheduler
        self._known: TTLCache[bytes, GatewayPrincipal | None] = TTLCache(
            REMEMBER_AT_MOST, REMEMBER_SECONDS, timer=clock
        )
        self._asking: dict[bytes, asyncio.Task[GatewayPrincipal | None]] = {}

    async def principal(self, token: str) -> GatewayPrincipal | None:
        """The principal of a token; ``None`` for an unknown one. Raises ``HubUnavailable``."""
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        try:
            return self._known[key]
        except KeyError:
            pass
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(key, token))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(self, key: bytes, token: str) -> GatewayPrincipal | None:
        of_task = token.startswith(TASK_TOKEN)
        found = await (self._of_task(token) if of_task else self._of_hub(token))
        self._known[key] = found
        return found

    async def _of_task(self, token: str) -> GatewayPrincipal | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._scheduler.send(
                    "POST", "/gateway/tasks", body={"token": token}, repeatable=True
                )
            task = msgspec.json.decode(answer, type=_TaskIdentity)
        except ApiError as error:
            if error.status in (404, 422):
                return None
            raise HubUnavailable(f"The scheduler answered {error.status}") from error
        except (CarrelError, TimeoutError, msgspec.MsgspecError) as error:
            raise HubUnavailable("The scheduler does not answer") from error
        own = frozenset({task.project})
        return GatewayPrincipal(
            task.user, is_user=True, projects=own, scopes=frozenset(), within=task.project
        )

    async def _of_hub(self, token: str) -> GatewayPrincipal | None:
        status, model = await self._call("/user", token)
        if status in (401, 403, 404):
            return None
        if status != 200:
            raise HubUnavailable(f"The Hub answered {status}")
        name, is_user = str(model["name"]), model.get("kind", "user") == "user"
        groups = model.get("groups")
        if groups is None and is_user:
            status, found = await self._call(f"/users/{quote(name, safe='')}", self._settings.token)
            groups = found.get("groups") if status == 200 else None
        names = map(str, groups or ())
        projects = (one.removeprefix(GROUP_PREFIX) for one in names if one.startswith(GROUP_PREFIX))
        scopes = frozenset(map(str, model.get("scopes") or ()))
        return GatewayPrincipal(name, is_user=is_user, projects=frozenset(projects), scopes=scopes)

    async def _call(self, path: str, token: str) -> tuple[int, Mapping[str, Any]]:
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self._session.get(
                    self._settings.hub_api_url + path, headers={"Authorization": f"token {token}"}
                ) as answer,
            ):
                if answer.status >= 500:
                    raise HubUnavailable(f"The Hub answered {answer.status}")
                return answer.status, await answer.json() if answer.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise HubUnavailable("The Hub does not answer") from error
