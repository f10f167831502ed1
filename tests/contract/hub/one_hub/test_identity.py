"""What a service sees of the owner of a token: groups, and scopes no wider than theirs."""

import json
from typing import Any

import aiohttp
import pytest

from carrel_hub import scopes
from carrel_hub.accounts.store import AccountStore
from contract.hub.stack import PASSWORD, Person, Stack, person, token_model


async def own_token(somebody: Person) -> str:
    """A token as people make them on the token page."""
    _, model = await somebody.api("POST", f"/users/{somebody.name}/tokens", {"note": "test"})
    token: str = model["token"]
    return token


async def console_token(somebody: Person) -> str:
    """The OAuth token that the console gets at the person's sign-in."""
    status, text = await somebody.get("/services/console/")
    assert status == 200, text
    token: str = json.loads(text)["token"]
    return token


async def workspace_token(somebody: Person, stack: Stack) -> str:
    """The token inside the person's workspace."""
    await somebody.start()
    await somebody.until_ready()
    return (await somebody.inside())["JUPYTERHUB_API_TOKEN"]


def check_researcher(model: dict[str, Any], name: str, project: str) -> None:
    assert model["name"] == name
    assert model["groups"] == [f"project-{project}"]
    assert scopes.USE in model["scopes"]
    assert scopes.ADMIN not in model["scopes"]
    assert scopes.SPAWN not in model["scopes"]
    assert not any(scope.startswith("admin:") for scope in model["scopes"])


async def test_a_users_own_token(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        check_researcher(token_model(stack, await own_token(ada)), "ada", "vision")


async def test_the_consoles_token_for_a_user(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        model = token_model(stack, await console_token(ada))
        check_researcher(model, "ada", "vision")
        assert not any("servers" in scope and "access" not in scope for scope in model["scopes"])


async def test_a_workspaces_own_token(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        model = token_model(stack, await workspace_token(ada, stack))
        check_researcher(model, "ada", "vision")
        theirs = {scope for scope in model["scopes"] if scope.startswith("servers")}
        assert theirs <= {"servers!user=ada"}
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()


async def test_an_admins_tokens_carry_the_admins_right(stack: Stack) -> None:
    async with person(stack, "admin") as root:
        for token in (await own_token(root), await console_token(root)):
            model = token_model(stack, token)
            assert scopes.ADMIN in model["scopes"]
            assert scopes.SPAWN not in model["scopes"]


@pytest.mark.parametrize(
    ("service", "has", "has_not"),
    [
        ("scheduler", {"admin:groups", "start:servers"}, {"admin:users", "delete:servers"}),
        ("spawner", {scopes.SPAWN, scopes.USE}, {scopes.ADMIN, "admin:groups", "list:users"}),
        ("console", set(), {scopes.ADMIN, scopes.USE, "list:users", "admin:groups"}),
        ("gateway", {scopes.GATE, "read:users:groups"}, {scopes.USE, "list:users"}),
        ("metrics", {scopes.METRICS, "read:metrics"}, {scopes.USE, scopes.ADMIN, *scopes.ACCESS}),
        ("setup", {scopes.ADMIN, "admin:users"}, {scopes.SPAWN, "admin:servers"}),
    ],
)  # fmt: skip
def test_services_hold_what_they_need(
    stack: Stack, service: str, has: set[str], has_not: set[str]
) -> None:
    held = set(token_model(stack, getattr(stack.keys, service))["scopes"])
    assert has <= held
    assert not has_not & held


async def test_prometheus_reads_the_hubs_metrics_with_its_own_key_only(stack: Stack) -> None:
    """At the Hub itself, as on a cluster, and without being sent elsewhere."""
    address = f"{stack.settings.hub_url}/hub/metrics"
    async with aiohttp.ClientSession() as session:
        given = {"Authorization": f"Bearer {stack.keys.metrics}"}
        async with session.get(address, headers=given, allow_redirects=False) as answer:
            assert answer.status == 200
            assert "jupyterhub_running_servers" in await answer.text()
        given = {"Authorization": f"Bearer {stack.keys.console}"}
        async with session.get(address, headers=given, allow_redirects=False) as answer:
            assert answer.status == 403


async def test_a_wrong_password_and_an_unknown_name(stack: Stack) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        assert await Person(stack, session, "grace").sign_in("wrong") == 403
        assert await Person(stack, session, "mallory").sign_in(PASSWORD) == 403


async def test_guessing_is_slowed_down(stack: Stack) -> None:
    accounts = AccountStore(stack.settings.accounts_file)
    accounts.add("victim", PASSWORD)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        victim = Person(stack, session, "victim")
        seen = [await victim.sign_in(f"guess-{number}") for number in range(6)]
        assert seen[:5] == [403] * 5
        assert seen[5] == 429
        assert await victim.sign_in() == 429


async def test_an_account_made_while_the_hub_runs(stack: Stack) -> None:
    accounts = AccountStore(stack.settings.accounts_file)
    accounts.add("marie", PASSWORD, joins=["vision"])
    async with person(stack, "marie") as marie:
        _, model = await marie.api("GET", "/users/marie")
        assert model["groups"] == ["project-vision"]
    account = accounts.find("marie")
    assert account is not None
    assert account.joins == []
