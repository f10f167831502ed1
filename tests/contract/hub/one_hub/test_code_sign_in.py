"""``carrel login`` by a code against a real Hub: allowed, refused, and by nobody else's leave."""

import asyncio
import re
import urllib.error
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from carrel.cli import code_sign_in
from carrel.cli.main import run
from carrel.client import Client, config
from contract.hub.stack import Person, Stack, browser, person, token_model, until

API = "/hub/api/carrel/sign-ins"
Login = Callable[[], "asyncio.Task[int]"]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the command line tells its person."""
    told: list[str] = []
    monkeypatch.setattr(code_sign_in, "note", told.append)
    return told


@pytest.fixture
def login(stack: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Login:
    """Begin ``carrel login`` with the Hub's plain address."""
    for name in ("CARREL_URL", "CARREL_TOKEN", "JUPYTERHUB_API_TOKEN", "JUPYTERHUB_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARREL_CONFIG_FILE", str(tmp_path / "config.json"))
    # The scheduler of this stack is a stand-in that knows no token of the Hub.
    me = SimpleNamespace(user="ada", projects=["vision"])
    monkeypatch.setattr(Client, "whoami", lambda _: me)
    words = ["login", "--url", f"{stack.url}/hub/home"]
    return lambda: asyncio.create_task(asyncio.to_thread(run, words))


async def code_of(shown: list[str]) -> str:
    await until(lambda: bool(shown), 20, "the code")
    found = re.search(r"code (\S+) there", shown[0])
    assert found is not None, shown
    return found[1]


async def decide(who: Person, code: str, decision: str = "") -> tuple[int, str]:
    await who.get("/hub/sign-in")
    status, text, _ = await who.post("/hub/sign-in", {"code": code, "decision": decision})
    return status, text


async def test_who_types_the_code_signs_the_command_line_in(
    stack: Stack, login: Login, shown: list[str]
) -> None:
    async with person(stack, "ada") as ada:
        command = login()
        code = await code_of(shown)
        assert f"{stack.url}/hub/sign-in" in shown[0]
        status, page = await decide(ada, code.lower().replace("-", " "))
        assert (status, "127.0.0.1" in page, code in page) == (200, True, True)
        assert not command.done()  # looking is not allowing
        assert "is signed in" in (await decide(ada, code, "allow"))[1]
        assert await command == 0
        stored = config.load()
        assert stored.url == f"{stack.url}/services/carrel"
        assert token_model(stack, stored.token)["name"] == "ada"
        _, made = await ada.api("GET", "/users/ada/tokens")
        notes = [
            one["note"] for one in made["api_tokens"] if one["note"].startswith("carrel login")
        ]
        assert len(notes) == 1
        assert (await decide(ada, code, "allow"))[0] == 404  # once


async def test_signing_out_revokes_that_token_and_no_other(
    stack: Stack, login: Login, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with person(stack, "ada") as ada:
        _, other = await ada.api("POST", "/users/ada/tokens", {"note": "her own"})
        command = login()
        await decide(ada, await code_of(shown), "allow")
        assert await command == 0
        stored = config.load()
        assert stored.by_code
        assert await asyncio.to_thread(run, ["logout"]) == 0
        assert "is revoked at the Hub" in capsys.readouterr().out
        assert config.load().token == ""
        with pytest.raises(urllib.error.HTTPError, match="403"):
            token_model(stack, stored.token)
        assert token_model(stack, other["token"])["name"] == "ada"
        config.save(stored)  # the Hub knows it no more: there is nothing left to revoke
        assert await asyncio.to_thread(run, ["logout"]) == 0
        assert "is revoked at the Hub" in capsys.readouterr().out


async def test_a_refused_command_line_is_not_signed_in(
    stack: Stack, login: Login, shown: list[str]
) -> None:
    async with person(stack, "ada") as ada:
        command = login()
        assert "not signed in" in (await decide(ada, await code_of(shown), "refuse"))[1]
        assert await command == 3
        assert config.load().token == ""


async def test_strangers_and_other_sites_allow_nothing(stack: Stack) -> None:
    async with browser(stack, "ada") as stranger, person(stack, "ada") as ada:
        async with stranger.session.post(f"{stack.url}{API}", json={"host": "desk"}) as answer:
            assert answer.status == 201
            begun = await answer.json()
        await stranger.get("/hub/login")
        fields = {"code": begun["code"], "decision": "allow"}
        assert (await stranger.post("/hub/sign-in", fields))[0] == 403
        assert 'name="password"' in (await stranger.get("/hub/sign-in"))[1]
        async with ada.session.post(f"{stack.url}/hub/sign-in", data=fields) as answer:
            assert answer.status == 403  # without the page's own token
        assert await collected(stranger.session, stack, begun["secret"]) == ("waiting", "")
        _, made = await ada.api("POST", "/users/ada/tokens", {"note": "test"})
        headers = {"Authorization": f"token {made['token']}"}
        async with (
            aiohttp.ClientSession(headers=headers) as program,
            program.post(f"{stack.url}/hub/sign-in", data=fields) as answer,
        ):
            assert answer.status == 403  # a token of hers makes no other one
        assert await collected(stranger.session, stack, begun["secret"]) == ("waiting", "")
        assert await collected(stranger.session, stack, "guess") == ("expired", "")


async def test_what_a_command_line_calls_itself_is_bounded(stack: Stack) -> None:
    async with browser(stack, "ada") as stranger:
        for host in ("x" * 65, "Carrel's own, allow this", "<b>", 7):
            async with stranger.session.post(f"{stack.url}{API}", json={"host": host}) as answer:
                assert answer.status == 400


async def collected(session: aiohttp.ClientSession, stack: Stack, secret: str) -> tuple[str, str]:
    async with session.post(f"{stack.url}{API}/token", json={"secret": secret}) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        found = await answer.json()
        return found["state"], found["token"]
