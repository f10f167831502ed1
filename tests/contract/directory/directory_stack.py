"""A Hub whose people sign in with a directory, and what tests ask of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from typing_extensions import override

from carrel_hub.directory.group_rules import GroupRule, GroupRules
from carrel_hub.sign_in import Ldap, Oidc, SignIn
from contract.hub.stack import Person, Stack

RULES = (
    GroupRule(group="vision-team", projects=["vision"]),
    GroupRule(group="speech-team", projects=["speech"]),
    GroupRule(group="it", admin=True),
)


class DirectoryStack(Stack):
    """Fake scheduler, proxy, Hub with ``provider``."""

    def __init__(self, folder: Path, provider: Ldap | Oidc) -> None:
        super().__init__(folder, {})
        self._sign_in = SignIn(
            provider=provider,
            required_groups=["staff", "it"],
            refresh_seconds=1.0,
            uid_source="directory",
        )

    @override
    def write_config(self, config: Path, keys_file: Path) -> None:
        self.settings = msgspec.structs.replace(self.settings, sign_in=self._sign_in)
        for rule in RULES:
            self.rules.put(rule)
        super().write_config(config, keys_file)

    @property
    def rules(self) -> GroupRules:
        """The table of groups."""
        return GroupRules(self.settings.groups_file)

    async def user(self, name: str) -> dict[str, Any]:
        """The Hub's model of a user; empty when there is none."""
        url = f"{self.settings.hub_url}/hub/api/users/{name}"
        headers = {"Authorization": f"token {self.keys.setup}"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
            found: dict[str, Any] = await answer.json() if answer.status == 200 else {}
            return found

    async def rights(self, name: str) -> tuple[set[str], bool]:
        """Groups of the Hub, and whether the user manages everything."""
        model = await self.user(name)
        return set(model["groups"]), bool(model["admin"])

    async def person(self, name: str, method: str = "GET", tail: str = "") -> dict[str, Any]:
        """Ask the Hub about a person as the scheduler does, or change them."""
        url = f"{self.settings.hub_url}/hub/api/carrel/people/{name}{tail}?actor=root"
        headers = {"Authorization": f"token {self.keys.scheduler}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, url) as answer,
        ):
            found: dict[str, Any] = await answer.json()
            assert answer.status == 200, found
            return found

    def give(self, group: str, **rule: Any) -> None:
        """Put a rule into the table of groups that the scheduler keeps."""
        self.fake.directory_groups[group] = {"group": group, "source": "table"} | rule

    def take(self, group: str) -> None:
        """Remove a rule of that table."""
        del self.fake.directory_groups[group]

    async def add_by_hand(self, group: str, name: str) -> None:
        """Add a person to a group of the Hub, as an admin does."""
        url = f"{self.settings.hub_url}/hub/api/groups/{group}"
        headers = {"Authorization": f"token {self.keys.scheduler}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.post(url) as made:
                assert made.status in (201, 409), await made.text()
            async with session.post(f"{url}/users", json={"users": [name]}) as added:
                assert added.status == 200, await added.text()


@asynccontextmanager
async def browser(stack: Stack, name: str) -> AsyncIterator[Person]:
    """A browser that is not signed in."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Person(stack, session, name)


async def signed_in(somebody: Person) -> bool:
    """Whether the Hub knows who looks at its home page."""
    status, page = await somebody.get("/hub/home")
    return status == 200 and "/hub/logout" in page


async def becomes(condition: Callable[[], Awaitable[bool]], seconds: float = 40.0) -> None:
    """Wait for a condition, with a bound."""
    end = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > end:
            raise AssertionError(f"it did not come within {seconds} s")
        await asyncio.sleep(0.1)
