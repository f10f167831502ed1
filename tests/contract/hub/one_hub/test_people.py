"""Pages for local accounts: one's own password, invitations, people."""

import asyncio
from typing import Any

import aiohttp
import psutil
import pytest
from jupyterhub import orm
from sqlalchemy import create_engine, delete, insert

from carrel_hub.accounts.store import AccountStore
from contract.hub.stack import PASSWORD, TIMEOUT_SECONDS, Person, Stack, browser, signed_in

NEW = "another-horse-battery"
SECONDS_OF_A_LIST = 1.0


@pytest.fixture
def accounts(stack: Stack) -> AccountStore:
    return AccountStore(stack.settings.accounts_file)


async def test_who_knows_the_password_changes_it_and_signs_in_anew(
    stack: Stack, accounts: AccountStore
) -> None:
    accounts.add("cora", PASSWORD)
    async with browser(stack, "cora") as cora, browser(stack, "cora") as elsewhere:
        for one in (cora, elsewhere):
            await one.sign_in()
            assert await signed_in(one)
        await cora.get("/hub/password")
        asked = {"old": PASSWORD, "new": NEW, "again": NEW}
        for wrong, told in (
            ({"old": "no-horse"}, "The present password is another one."),
            ({"again": "other-horse"}, "The two passwords differ."),
            ({"new": "short", "again": "short"}, "too short"),
        ):
            status, page, _ = await cora.post("/hub/password", asked | wrong)
            assert status in (403, 422)
            assert told in page
        _, _, address = await cora.post("/hub/password", asked)
        assert "/hub/login" in address
        assert not await signed_in(elsewhere)
        assert await cora.sign_in(PASSWORD) == 403
        await cora.sign_in(NEW)
        assert await signed_in(cora)


async def test_an_invitation_of_the_api_counts_once(stack: Stack, accounts: AccountStore) -> None:
    accounts.add("boss", PASSWORD, admin=True)
    async with browser(stack, "dora") as dora, browser(stack, "boss") as boss:
        await boss.sign_in()
        status, made = await asked(stack, "POST", "/dora/invite", {"projects": ["vision"]})
        assert status == 200
        link = f"/{made['path']}"
        token = made["path"].rpartition("token=")[2]
        _, invited = await asked(stack, "GET", "/dora")
        assert (invited["state"], invited["memberships"][0]["project"]) == ("invited", "vision")
        assert await dora.sign_in("") == 403
        _, form = await dora.get(link)
        assert "For the account <b>dora</b>" in form
        chosen = {"user": "dora", "token": token, "new": NEW, "again": NEW}
        _, _, address = await dora.post("/hub/invitation", chosen)
        assert "/hub/login" in address
        await dora.sign_in(NEW)
        assert await signed_in(dora)
        status, again = await dora.get(link)
        assert (status, "does not count any more" in again) == (404, True)
        status, told, _ = await dora.post("/hub/invitation", chosen)
        assert (status, "does not count any more" in told) == (422, True)
        for admin in (True, False):
            status, changed = await asked(stack, "PATCH", "/dora", {"admin": admin})
            assert (status, changed["admin"]) == (200, admin)
            assert accounts.all()["dora"].admin is admin
        _, given = await asked(stack, "PATCH", "/dora", {"projects": ["speech"]})
        assert [one["project"] for one in given["memberships"]] == ["speech"]
        half = {"admin": True, "projects": ["speech", "No Name"]}
        assert (await asked(stack, "PATCH", "/dora", half))[0] == 422
        assert accounts.all()["dora"].admin is False, "nothing is half done"
        assert (await asked(stack, "DELETE", "/boss", actor="boss"))[0] == 409
        assert (await asked(stack, "DELETE", "/dora"))[0] == 204
        assert "dora" not in accounts.all()
        await until_signed_out(dora)


async def test_who_is_disabled_is_out_until_enabled(stack: Stack, accounts: AccountStore) -> None:
    if accounts.find("boss") is None:
        accounts.add("boss", PASSWORD, admin=True)
    accounts.add("gus", PASSWORD, joins=["vision"])
    async with browser(stack, "gus") as gus:
        await gus.sign_in()
        status, made = await gus.api("POST", "/users/gus/tokens", {})
        assert status == 201
        assert (await asked(stack, "POST", "/gus/disable"))[0] == 200
        assert not await signed_in(gus)
        assert await gus.sign_in() == 403
        assert await holds(stack, made["token"]) == 403
        _, found = await asked(stack, "GET", "/gus")
        assert (found["state"], found["memberships"][0]["project"]) == ("disabled", "vision")
        assert (await asked(stack, "POST", "/gus/enable"))[1]["state"] == "active"
        assert await holds(stack, made["token"]) == 403
        assert await gus.sign_in() == 200
        assert await signed_in(gus)
        assert (await asked(stack, "POST", "/gus/end-sessions"))[0] == 200
        await until_signed_out(gus)
        wrong = {"old": "no-horse", "new": NEW}
        assert (await asked(stack, "POST", "/gus/password", wrong))[0] == 403
        right = {"old": PASSWORD, "new": NEW}
        assert (await asked(stack, "POST", "/gus/password", right))[0] == 204
        assert await gus.sign_in(NEW) == 200
    status, told = await asked(stack, "POST", "/boss/disable", actor="boss")
    assert (status, "Let another administrator" in told["message"]) == (409, True)
    assert (await asked(stack, "POST", "/zoe/disable"))[0] == 404


async def test_a_link_is_revoked(stack: Stack, accounts: AccountStore) -> None:
    await asked(stack, "POST", "/hal/invite", {})
    assert (await asked(stack, "POST", "/hal/revoke-invitation"))[0] == 200
    assert accounts.find("hal") is None
    accounts.add("ida", PASSWORD)
    await asked(stack, "POST", "/ida/invite", {})
    _, found = await asked(stack, "POST", "/ida/revoke-invitation")
    assert (found["state"], found["invited_until"]) == ("active", 0.0)
    assert (await asked(stack, "POST", "/ida/revoke-invitation"))[0] == 409


async def test_people_are_told_to_the_scheduler_alone(stack: Stack, accounts: AccountStore) -> None:
    accounts.add("eli", PASSWORD, admin=True)
    async with browser(stack, "eli") as eli:
        await eli.sign_in()
        assert (await eli.api("GET", "/carrel/people"))[0] == 403
        status, _ = await eli.api("PATCH", "/carrel/people/eli?actor=eli", {"admin": True})
        assert status == 403
        assert (await eli.get("/hub/api/carrel/people"))[0] == 403
    for token in (stack.keys.setup, stack.keys.spawner, stack.keys.gateway, "nobody's"):
        assert (await asked(stack, "GET", "", token=token))[0] == 403
    status, page = await asked(stack, "GET", "?search=el&limit=1")
    assert ([one["name"] for one in page["items"]], status) == (["eli"], 200)
    assert (page["total"], page["sign_in"]) == (1, "local")


async def test_thousands_are_listed_in_a_moment(stack: Stack) -> None:
    engine = create_engine(f"sqlite:///{stack.settings.hub_dir / 'jupyterhub.sqlite'}")
    rows = [{"name": f"many-{n}", "admin": False, "cookie_id": f"many-{n}"} for n in range(5000)]
    with engine.begin() as database:
        database.execute(insert(orm.User), rows)
    hub = psutil.Process(stack._processes["hub"].pid)
    begun = hub.cpu_times().user
    _, page = await asked(stack, "GET", "?search=many&limit=50&offset=4990")
    assert (len(page["items"]), page["total"]) == (10, 5000)
    assert hub.cpu_times().user - begun < SECONDS_OF_A_LIST
    with engine.begin() as database:
        database.execute(delete(orm.User).where(orm.User.name.like("many-%")))


async def asked(
    stack: Stack, method: str, path: str, body: Any = None, *, token: str = "", actor: str = "chief"
) -> tuple[int, Any]:
    """What the Hub answers the scheduler."""
    url = f"{stack.settings.hub_url}/hub/api/carrel/people{path}"
    headers = {"Authorization": f"token {token or stack.keys.scheduler}"}
    told = {} if method == "GET" else {"actor": actor}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, url, json=body, params=told) as answer,
    ):
        return answer.status, None if answer.status == 204 else await answer.json()


async def holds(stack: Stack, token: str) -> int:
    """The status of who comes with a token."""
    headers = {"Authorization": f"token {token}"}
    url = f"{stack.settings.hub_url}/hub/api/user"
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
        return answer.status


async def until_signed_out(somebody: Person) -> None:
    """Within the time that a look at the accounts takes."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            if not await signed_in(somebody):
                break
            await asyncio.sleep(0.1)


async def test_a_form_of_another_site_changes_nothing(stack: Stack, accounts: AccountStore) -> None:
    accounts.add("fay", PASSWORD)
    async with browser(stack, "fay") as fay:
        await fay.sign_in()
        url = f"{stack.url}/hub/password"
        asked = {"old": PASSWORD, "new": NEW, "again": NEW}
        async with fay.session.post(url, data=asked) as answer:
            assert answer.status == 403
        assert await fay.sign_in(PASSWORD) == 200
