"""Who a token belongs to: asked of the Hub with the token itself, remembered for a short while.

A task of some work comes with a token of the scheduler's, which is asked about these. It may ask
what its user and its project share, in its own project only.

A token has to carry the right to come to this service, as with every service of the Hub. Groups
come from the same answer or, where the token may not read them, are asked with our own.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from carrel.client.transport import Transport
from carrel.errors import ApiError, CarrelError
from carrel_hub.gateway.settings import Settings

REMEMBER_SECONDS: Final = 5.0
REMEMBER_UNKNOWN_SECONDS: Final = 5.0
REMEMBER_AT_MOST: Final = 4096
ANSWER_SECONDS: Final = 10.0
# How the scheduler's tokens of tasks begin; the Hub's have no dots.
TASK_TOKEN: Final = "ct1."  # noqa: S105 - no secret
GROUP_PREFIX: Final = "project-"


class HubUnavailable(Exception):  # noqa: N818 - an outcome to handle
    """The Hub, or the scheduler for a task, did not answer: nobody knows whose token it is."""


class _Task(msgspec.Struct):
    user: str
    project: str


@dataclass(frozen=True, slots=True)
class Person:
    """An authenticated caller.

    Attributes:
        is_user: false for services of the Hub.
        within: the only project whose work it may ask, of a task; ``None`` is every one.
    """

    name: str
    is_user: bool
    projects: frozenset[str]
    scopes: frozenset[str]
    within: str | None = None

    def may_enter(self, service: str) -> bool:
        """Whether the token is good for this service."""
        return self.within is not None or bool(
            self.scopes & {"access:services", f"access:services!service={service}"}
        )


class People:
    """Turns tokens into persons. ``clock`` gives seconds, ``scheduler`` is the way to its API."""

    def __init__(
        self,
        settings: Settings,
        session: aiohttp.ClientSession,
        clock: Callable[[], float],
        scheduler: Transport,
    ) -> None:
        self._settings, self._session, self._clock = settings, session, clock
        self._scheduler = scheduler
        self._known: OrderedDict[bytes, tuple[float, Person | None]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Person | None]] = {}

    async def person(self, token: str) -> Person | None:
        """Whose token it is; ``None`` if nobody's. Raises ``HubUnavailable``."""
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(key)
        if known is not None and self._clock() < known[0]:
            return known[1]
        task = self._asking.get(key)
        if task is None:
            task = asyncio.ensure_future(self._ask(key, token))
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(self, key: bytes, token: str) -> Person | None:
        of_task = token.startswith(TASK_TOKEN)
        person = await (self._task(token) if of_task else self._of_hub(token))
        keep = REMEMBER_UNKNOWN_SECONDS if person is None else REMEMBER_SECONDS
        self._known[key] = (self._clock() + keep, person)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBER_AT_MOST:
            self._known.popitem(last=False)
        return person

    async def _of_hub(self, token: str) -> Person | None:
        status, model = await self._call("/user", token)
        if status == 200:
            return await self._person(model)
        if status not in (401, 403, 404):
            raise HubUnavailable(f"the Hub answered {status}")
        return None

    async def _task(self, token: str) -> Person | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                told = await self._scheduler.send(
                    "POST", "/gateway/tasks", body={"token": token}, repeatable=True
                )
            model = msgspec.json.decode(told, type=_Task)
        except ApiError as error:
            if error.status in (404, 422):
                return None
            raise HubUnavailable(f"the scheduler answered {error.status}") from error
        except (CarrelError, TimeoutError, msgspec.MsgspecError) as error:
            raise HubUnavailable("the scheduler does not answer") from error
        return Person(
            name=model.user,
            is_user=True,
            projects=frozenset({model.project}),
            scopes=frozenset(),
            within=model.project,
        )

    async def _person(self, model: Mapping[str, Any]) -> Person:
        name, is_user = str(model["name"]), model.get("kind", "user") == "user"
        groups = model.get("groups")
        if groups is None and is_user:
            status, found = await self._call(f"/users/{quote(name, safe='')}", self._settings.token)
            groups = found.get("groups") if status == 200 else None
        names = map(str, groups or ())
        return Person(
            name=name,
            is_user=is_user,
            projects=frozenset(
                one.removeprefix(GROUP_PREFIX) for one in names if one.startswith(GROUP_PREFIX)
            ),
            scopes=frozenset(map(str, model.get("scopes") or ())),
        )

    async def _call(self, path: str, token: str) -> tuple[int, Mapping[str, Any]]:
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self._session.get(
                    self._settings.hub_api_url + path, headers={"Authorization": f"token {token}"}
                ) as answer,
            ):
                if answer.status >= 500:
                    raise HubUnavailable(f"the Hub answered {answer.status}")
                return answer.status, await answer.json() if answer.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise HubUnavailable("the Hub does not answer") from error
