"""What ends sessions, tokens and membership: signing out, a new password, a removed account."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from carrel.client import Client
from carrel_hub.accounts.store import AccountStore
from contract.hub.stack import (
    PASSWORD,
    Person,
    Stack,
    browser,
    person,
    signed_in,
    token_model,
    until,
)

NEW_PASSWORD = "another-horse-battery"


@pytest.fixture
def accounts(stack: Stack) -> AccountStore:
    return AccountStore(stack.settings.accounts_file)


def copy_of(somebody: Person, session: aiohttp.ClientSession) -> Person:
    """Somebody else's browser with all of a person's cookies."""
    for cookie in somebody.session.cookie_jar:
        session.cookie_jar.update_cookies({cookie.key: cookie})
    return Person(somebody.stack, session, somebody.name)


async def until_signed_out(somebody: Person) -> None:
    async with asyncio.timeout(60):
        while await signed_in(somebody):  # noqa: ASYNC110 - it is the Hub that is asked
            await asyncio.sleep(0.1)


async def own_token(somebody: Person, note: str = "test") -> str:
    _, model = await somebody.api("POST", f"/users/{somebody.name}/tokens", {"note": note})
    return str(model["token"])


async def console_token(somebody: Person) -> str:
    _, text = await somebody.get("/services/console/")
    return str(json.loads(text)["token"])


def is_good(stack: Stack, token: str) -> bool:
    """Whether the Hub lets a token in."""
    try:
        return bool(token_model(stack, token)["name"])
    except urllib.error.HTTPError as error:
        if error.code != 403:
            raise
        return False


def stopped_hub(stack: Stack, change: Callable[[], None]) -> None:
    """Change something while the Hub is stopped."""
    stack.stop("hub")
    change()
    stack.start("hub")
    stack.wait_for_hub()


def runs_nothing(stack: Stack, user: str) -> bool:
    """Whether no workspace of the user runs or waits."""
    with Client(stack.fake.url, stack.fake.token("spawner")) as client:
        found = client.list_workloads(user=user, kind="workspace")
    return all(one.at_rest for one in found)


async def users(stack: Stack) -> dict[str, Any]:
    """The Hub's users by name, as an admin sees them."""
    async with person(stack, "admin") as admin:
        _, found = await admin.api("GET", "/users")
        return {one["name"]: one for one in found}


async def test_signing_out_ends_every_copy_of_the_session(stack: Stack) -> None:
    async with (
        person(stack, "grace") as grace,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as elsewhere,
    ):
        token, for_programs = await console_token(grace), await own_token(grace)
        thief = copy_of(grace, elsewhere)
        assert await signed_in(thief)
        await grace.get("/hub/logout")
        assert not await signed_in(thief)
        assert not is_good(stack, token)
        assert is_good(stack, for_programs)  # it was made to outlast sessions
        assert await grace.sign_in() == 200
        assert await signed_in(grace)


async def change_password(stack: Stack, accounts: AccountStore, *, hub_stopped: bool) -> None:
    async with person(stack, "ada") as ada:
        tokens = [await own_token(ada), await own_token(ada, "Server at /user/ada/")]
        tokens.append(await console_token(ada))
        await ada.start()
        await ada.until_ready()
        tokens.append(await own_token(ada, "Server at /user/ada/"))
        workspace = (await ada.inside())["JUPYTERHUB_API_TOKEN"]

        def change() -> None:
            accounts.set_password("ada", NEW_PASSWORD)

        if hub_stopped:
            await asyncio.to_thread(stopped_hub, stack, change)
        else:
            change()
            await until(lambda: not any(is_good(stack, one) for one in tokens), 60, "the end")
        assert not any(is_good(stack, one) for one in tokens)
        assert not await signed_in(ada)
        assert is_good(stack, workspace)
        assert await ada.sign_in(PASSWORD) == 403
        assert await ada.sign_in(NEW_PASSWORD) == 200
        await asyncio.to_thread(accounts.set_password, "ada", PASSWORD)
        # The form belongs to the session: it is refused if that ends between the two requests.
        await until_signed_out(ada)
        assert await ada.sign_in(PASSWORD) == 200
        assert await signed_in(ada)
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()


async def test_a_new_password_ends_sessions_and_tokens(
    stack: Stack, accounts: AccountStore
) -> None:
    await change_password(stack, accounts, hub_stopped=False)


async def test_a_new_password_while_the_hub_is_stopped(
    stack: Stack, accounts: AccountStore
) -> None:
    await change_password(stack, accounts, hub_stopped=True)


async def test_an_account_removed_while_the_hub_is_stopped(
    stack: Stack, accounts: AccountStore
) -> None:
    accounts.remove("linus")
    await until_deleted(stack, "linus")
    accounts.add("linus", PASSWORD, admin=True, joins=["vision"])
    async with person(stack, "linus") as linus:
        token = await own_token(linus)
        assert await linus.start("lab2") < 300
        await linus.until_ready("lab2")
        await asyncio.to_thread(stopped_hub, stack, lambda: accounts.remove("linus"))
        assert not is_good(stack, token)
        assert not await signed_in(linus)
        assert await linus.sign_in() == 403

        await until_deleted(stack, "linus")
        assert runs_nothing(stack, "linus")
        accounts.add("linus", PASSWORD)
        assert await linus.sign_in() == 200
        _, model = await linus.api("GET", "/users/linus")
        assert (model["groups"], model["admin"]) == ([], False)
        assert not is_good(stack, token)


async def test_an_account_made_anew_while_the_hub_is_stopped(
    stack: Stack, accounts: AccountStore
) -> None:
    accounts.add("emmy", PASSWORD, admin=True, joins=["vision"])
    async with person(stack, "emmy") as emmy:
        token = await own_token(emmy)

        def change() -> None:
            accounts.remove("emmy")
            accounts.add("emmy", PASSWORD, joins=["speech"])

        await asyncio.to_thread(stopped_hub, stack, change)
        assert not is_good(stack, token)
        assert not await signed_in(emmy)
        assert await emmy.sign_in() == 200
        _, model = await emmy.api("GET", "/users/emmy")
        assert (model["groups"], model["admin"]) == (["project-speech"], False)
        accounts.remove("emmy")


async def until_deleted(stack: Stack, name: str) -> None:
    """Until the Hub has no such user."""

    def gone() -> bool:
        url = f"{stack.settings.hub_url}/hub/api/users/{name}"
        headers = {"Authorization": f"token {stack.keys.setup}"}
        try:
            urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60).close()
        except urllib.error.HTTPError as error:
            return error.code == 404
        return False

    await until(gone, 60, "the end of the Hub's user")


async def test_an_account_removed_while_the_hub_runs(stack: Stack, accounts: AccountStore) -> None:
    async with person(stack, "grace") as grace:
        token = await own_token(grace)
        for server in ("", "second"):
            assert await grace.start(server) < 300
            await grace.until_ready(server)
        accounts.remove("grace")
        await until(lambda: not is_good(stack, token), 10, "the end of the token")
        assert not await signed_in(grace)
        await until_deleted(stack, "grace")
        assert runs_nothing(stack, "grace")


async def test_the_hubs_admin_page_works_on_accounts(stack: Stack, accounts: AccountStore) -> None:
    accounts.add("lise", PASSWORD)
    async with person(stack, "lise") as lise, person(stack, "admin") as admin:
        status, said = await admin.api("POST", "/users", {"usernames": ["otto"]})
        assert status == 400
        assert "carrel user add otto" in said["message"]
        assert "otto" not in await users(stack)
        status, _ = await admin.api("DELETE", "/users/lise")
        assert status == 204
        assert accounts.find("lise") is None
        assert await lise.sign_in() == 403


async def test_a_stranger_locks_nobody_out(stack: Stack, accounts: AccountStore) -> None:
    accounts.add("victim", PASSWORD)
    async with (
        browser(stack, "victim", "127.0.0.2") as stranger,
        browser(stack, "victim", "127.0.0.3") as victim,
    ):
        seen = [await stranger.sign_in(f"guess-{number}") for number in range(6)]
        assert seen == [403] * 5 + [429]
        assert await victim.sign_in() == 200


async def test_a_browser_that_signed_in_before_is_not_locked_out(
    stack: Stack, accounts: AccountStore
) -> None:
    accounts.add("regular", PASSWORD)
    async with (
        browser(stack, "regular", "127.0.0.4") as regular,
        browser(stack, "regular", "127.0.0.4") as stranger,
    ):
        assert await regular.sign_in() == 200
        await regular.get("/hub/logout")
        seen = [await stranger.sign_in(f"guess-{number}") for number in range(6)]
        assert seen == [403] * 5 + [429]
        assert await stranger.sign_in() == 429
        assert await regular.sign_in() == 200


async def test_invented_names_evict_no_counter(stack: Stack) -> None:
    async with browser(stack, "ada", "127.0.0.5") as stranger:
        await stranger.get("/hub/login")
        seen = []
        for number in range(40):
            name = "ada" if number < 5 else f"invented{number}"
            seen.append(await Person(stack, stranger.session, name).sign_in("wrong-password"))
        assert 429 in seen
        assert await stranger.sign_in() == 429


async def test_strangers_learn_no_exact_version(stack: Stack) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/hub/login", "/hub/api/", "/hub/nothing"):
            async with session.get(stack.url + path) as answer:
                told = " ".join([str(answer.headers), await answer.text()])
                assert "6." not in answer.headers["X-JupyterHub-Version"]
                assert "Tornado" not in told
        async with session.get(f"{stack.url}/hub/api/") as answer:
            assert await answer.json() == {"version": "6"}
