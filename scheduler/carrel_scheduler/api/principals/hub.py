"""JupyterHub's REST API as identity and membership.

Tokens are looked up with the token itself (``GET /user``), so no right of ours can be borrowed;
groups come from the same answer, or, where the token may not read them, are asked with the
service's own token. Answers are remembered for 5 s under the token's hash. A Hub that does not
answer is ``IdentityUnavailable``, never "unknown token".
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from carrel_scheduler.api.principals.identity import (
    MANAGE,
    USE,
    IdentityUnavailable,
    Principal,
    UnknownHubUser,
    group_of,
)
from carrel_scheduler.api.principals.members import MemberService
from carrel_schema.governance.service_accounts import SUFFIX

REMEMBER_SECONDS: Final = 5.0
REMEMBER_UNKNOWN_SECONDS: Final = 5.0
REMEMBER_AT_MOST: Final = 4096
ANSWER_WITHIN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """Status and decoded JSON body of the Hub's answer."""

    status: int
    body: Any


class HubClient:
    """Calls the Hub's REST API; ``token`` is the service's own."""

    def __init__(self, api_url: str, token: str) -> None:
        self._url, self._token = api_url.rstrip("/"), token
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self, method: str, path: str, *, token: str | None = None, json: Any = None
    ) -> HubAnswer:
        """Call the Hub; 5xx and no answer raise ``IdentityUnavailable``."""
        headers = {"Authorization": f"token {token or self._token}"}
        try:
            async with self._open().request(
                method, self._url + path, json=json, headers=headers
            ) as response:
                if response.status >= 500:
                    raise IdentityUnavailable(f"the Hub answered {response.status}")
                is_json = response.content_type == "application/json"
                return HubAnswer(response.status, await response.json() if is_json else None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise IdentityUnavailable("the Hub does not answer") from error

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session


class HubIdentity:
    """``Identity`` by the Hub. ``clock`` is in seconds and need not be the wall's."""

    def __init__(
        self, api_url: str, token: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._clock = HubClient(api_url, token), clock
        self._known: OrderedDict[bytes, tuple[float, Principal | None]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Principal | None]] = {}

    async def user_for_token(self, token: str) -> Principal | None:
        """See ``Identity``; concurrent questions about one token ask the Hub once."""
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(key)
        if known is not None and self._clock() < known[0]:
            self._known.move_to_end(key)
            return known[1]
        task = self._asking.get(key)
        if task is None:
            task = asyncio.ensure_future(self._ask(key, token))
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    def forget(self, user: str) -> None:
        """See ``Identity``."""
        stale = [key for key, (_, who) in self._known.items() if who and who.name == user]
        for key in stale:
            del self._known[key]

    async def close(self) -> None:
        """Close the connections to the Hub."""
        await self._client.close()

    async def _ask(self, key: bytes, token: str) -> Principal | None:
        answer = await self._client.call("GET", "/user", token=token)
        principal = None
        if answer.status == 200 and isinstance(answer.body, dict):
            if str(answer.body.get("name", "")).endswith(SUFFIX):
                return None  # a person of that name would own a service account's work
            principal = await self._principal(answer.body)
        elif answer.status not in (401, 403, 404):
            raise IdentityUnavailable(f"the Hub answered {answer.status}")
        keep = REMEMBER_UNKNOWN_SECONDS if principal is None else REMEMBER_SECONDS
        self._known[key] = (self._clock() + keep, principal)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBER_AT_MOST:
            self._known.popitem(last=False)
        return principal

    async def _principal(self, model: Mapping[str, Any]) -> Principal:
        name, is_user = str(model["name"]), model.get("kind", "user") == "user"
        groups = model.get("groups")
        if groups is None and is_user:
            answer = await self._client.call("GET", f"/users/{quote(name, safe='')}")
            groups = answer.body.get("groups") if answer.status == 200 else None
        scopes = set(map(str, model.get("scopes") or ()))
        scopes |= {one for one in (USE, MANAGE) if f"{one}!user={name}" in scopes}
        return Principal(
            name=name,
            kind="user" if is_user else "service",
            groups=frozenset(map(str, groups or ())),
            scopes=frozenset(scopes),
        )


class HubMembership:
    """``Membership`` by the Hub's groups; needs the scopes ``admin:groups`` and ``read:users``."""

    def __init__(
        self, api_url: str, token: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = HubClient(api_url, token)
        self._members = MemberService(self.users, clock)

    async def includes(self, project: str, user: str) -> bool:
        """See ``Membership``."""
        return await self._members.include(project, user)

    async def users(self, project: str) -> Sequence[str]:
        """See ``Membership``."""
        answer = await self._call("GET", project)
        return sorted(map(str, answer.body.get("users", ()))) if answer.status == 200 else []

    async def groups_of(self, user: str) -> Collection[str]:
        """See ``Membership``."""
        answer = await self._client.call("GET", f"/users/{quote(user, safe='')}")
        return frozenset(map(str, answer.body.get("groups") or ())) if answer.status == 200 else ()

    async def administers(self, user: str) -> bool:
        """See ``Membership``."""
        answer = await self._client.call("GET", f"/users/{quote(user, safe='')}")
        return answer.status == 200 and answer.body.get("admin") is True

    async def add(self, project: str, user: str) -> None:
        """See ``Membership``."""
        await self.create_group(project)
        known = await self._client.call("GET", f"/users/{quote(user, safe='')}")
        if known.status == 404:
            raise UnknownHubUser(user)
        await self._call("POST", project, "/users", {"users": [user]})

    async def remove(self, project: str, user: str) -> None:
        """See ``Membership``."""
        await self._call("DELETE", project, "/users", {"users": [user]}, accept=(400, 404))

    async def create_group(self, project: str) -> None:
        """See ``Membership``."""
        await self._call("POST", project, accept=(409,))

    async def delete_group(self, project: str) -> None:
        """See ``Membership``."""
        await self._call("DELETE", project, accept=(404,))

    async def close(self) -> None:
        """Close the connections to the Hub."""
        await self._client.close()

    async def _call(
        self,
        method: str,
        project: str,
        tail: str = "",
        json: Any = None,
        accept: Sequence[int] = (404,),
    ) -> HubAnswer:
        path = f"/groups/{quote(group_of(project), safe='')}{tail}"
        try:
            answer = await self._client.call(method, path, json=json)
        finally:
            if method != "GET":
                self._members.forget(project)
        if answer.status >= 400 and answer.status not in accept:
            raise IdentityUnavailable(f"the Hub refused {method} {path} with {answer.status}")
        return answer
