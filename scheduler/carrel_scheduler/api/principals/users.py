"""People as the Hub keeps them: asked for and changed over its REST API with the service's token.

Who calls has been checked before; the Hub is told the name, since nobody disables themselves.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from carrel_scheduler.api.principals.hub import HubClient
from carrel_scheduler.api.principals.identity import IdentityUnavailable
from carrel_schema.governance.people import (
    DirectoryGroupList,
    DirectoryGroupOut,
    Invitation,
    InvitationFields,
    PasswordChange,
    UserFields,
    UserOut,
    UserPage,
)

PEOPLE: Final = "/carrel/people"
FILE_RULES: Final = "/carrel/directory-groups"
T = TypeVar("T")


class UserRefusal(Exception):  # noqa: N818 - a refusal
    """The Hub refuses a change; ``status`` is that of its answer, the message is for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Users(Protocol):
    """The people of a Hub. All calls raise ``IdentityUnavailable`` and ``UserRefusal``."""

    async def page(self, query: Mapping[str, str]) -> UserPage:
        """A page of users, by the Hub's parameters ``search``, ``state``, ``sort``, ..."""
        ...

    async def get(self, name: str) -> UserOut:
        """Read a user."""
        ...

    async def update(self, name: str, fields: UserFields, actor: str) -> UserOut:
        """Change one."""
        ...

    async def remove(self, name: str, actor: str) -> None:
        """Remove one with sessions, tokens and memberships."""
        ...

    async def invite(self, name: str, fields: InvitationFields, actor: str) -> Invitation:
        """Create a link with which the user sets a password."""
        ...

    async def act(self, name: str, action: str, actor: str) -> None:
        """Enable, disable, end sessions or revoke the invitation of one."""
        ...

    async def change_password(self, name: str, change: PasswordChange) -> None:
        """Choose a new password by the present one."""
        ...

    async def file_rules(self) -> list[DirectoryGroupOut]:
        """Rules of groups of the directory in the Hub's file."""
        ...


class HubUsers:
    """``Users`` of a real Hub."""

    def __init__(self, api_url: str, token: str) -> None:
        self._client = HubClient(api_url, token)

    async def page(self, query: Mapping[str, str]) -> UserPage:
        """See ``Users``."""
        return await self._ask("GET", f"{PEOPLE}?{urlencode(query)}", UserPage)

    async def get(self, name: str) -> UserOut:
        """See ``Users``."""
        return await self._ask("GET", _path(name), UserOut)

    async def update(self, name: str, fields: UserFields, actor: str) -> UserOut:
        """See ``Users``."""
        return await self._ask("PATCH", _path(name, actor=actor), UserOut, fields)

    async def remove(self, name: str, actor: str) -> None:
        """See ``Users``."""
        await self._send("DELETE", _path(name, actor=actor))

    async def invite(self, name: str, fields: InvitationFields, actor: str) -> Invitation:
        """See ``Users``."""
        return await self._ask("POST", _path(name, "invite", actor=actor), Invitation, fields)

    async def act(self, name: str, action: str, actor: str) -> None:
        """See ``Users``."""
        await self._send("POST", _path(name, action, actor=actor))

    async def change_password(self, name: str, change: PasswordChange) -> None:
        """See ``Users``."""
        await self._send("POST", _path(name, "password", actor=name), change)

    async def file_rules(self) -> list[DirectoryGroupOut]:
        """See ``Users``."""
        return list((await self._ask("GET", FILE_RULES, DirectoryGroupList)).items)

    async def close(self) -> None:
        """Close the connections to the Hub."""
        await self._client.close()

    async def _ask(self, method: str, path: str, kind: type[T], body: Any = None) -> T:
        return msgspec.convert(await self._send(method, path, body), kind)

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        json = None if body is None else msgspec.to_builtins(body)
        answer = await self._client.call(method, path, json=json)
        if answer.status >= 400:
            message = answer.body.get("message", "") if isinstance(answer.body, dict) else ""
            if answer.status in (400, 401) or not message:
                raise IdentityUnavailable(f"the Hub refused {method} of a user: {answer.status}")
            raise UserRefusal(answer.status, str(message))
        return answer.body


class NoUsers:
    """The users of a Hub that does not manage users for Carrel."""

    def __getattr__(self, name: str) -> Any:
        """A method that refuses: there are no users to ask for."""

        async def refuse(*_: Any) -> Any:
            raise UserRefusal(404, "This Hub does not keep people for Carrel.")

        return refuse


def _path(name: str, *parts: str, actor: str = "") -> str:
    path = "/".join((PEOPLE, quote(name, safe=""), *parts))
    return f"{path}?{urlencode({'actor': actor})}" if actor else path
