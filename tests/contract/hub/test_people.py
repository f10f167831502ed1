"""Pages for local accounts: one's own password, invitations, people."""

import asyncio
import re

import pytest

from carrel_hub.accounts.store import Accounts
from contract.hub.stack import PASSWORD, PATIENCE_SECONDS, Stack
from contract.hub.test_sessions import browser, signed_in

NEW = "another-horse-battery"


@pytest.fixture
def accounts(stack: Stack) -> Accounts:
    return Accounts(stack.settings.accounts_file)


async def test_who_knows_the_password_changes_it_and_signs_in_anew(
    stack: Stack, accounts: Accounts
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


async def test_an_admin_invites_and_the_link_counts_once(stack: Stack, accounts: Accounts) -> None:
    accounts.add("boss", PASSWORD, admin=True)
    async with browser(stack, "boss") as boss, browser(stack, "dora") as dora:
        await boss.sign_in()
        await boss.get("/hub/people")
        fields = {"action": "invite", "user": "dora", "projects": "vision"}
        _, page, _ = await boss.post("/hub/people", fields)
        found = re.search(r"/hub/invitation\?user=dora&amp;token=([\w-]+)", page)
        assert found is not None
        link = f"/hub/invitation?user=dora&token={found[1]}"
        assert found[1] not in (await boss.get("/hub/people"))[1]
        assert await dora.sign_in("") == 403
        _, form = await dora.get(link)
        assert "For the account <b>dora</b>" in form
        chosen = {"user": "dora", "token": found[1], "new": NEW, "again": NEW}
        _, _, address = await dora.post("/hub/invitation", chosen)
        assert "/hub/login" in address
        await dora.sign_in(NEW)
        assert await signed_in(dora)
        status, again = await dora.get(link)
        assert (status, "does not count any more" in again) == (404, True)
        status, told, _ = await dora.post("/hub/invitation", chosen)
        assert (status, "does not count any more" in told) == (422, True)
        for action, wanted in (("promote", True), ("demote", False)):
            await boss.post("/hub/people", {"action": action, "user": "dora"})
            assert accounts.all()["dora"].admin is wanted
        status, told, _ = await boss.post("/hub/people", {"action": "remove", "user": "boss"})
        assert (status, "Let another admin" in told) == (422, True)
        await boss.post("/hub/people", {"action": "remove", "user": "dora"})
        assert "dora" not in accounts.all()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if not await signed_in(dora):
                    break
                await asyncio.sleep(0.1)


async def test_people_are_looked_after_by_admins_alone(stack: Stack, accounts: Accounts) -> None:
    accounts.add("eli", PASSWORD)
    async with browser(stack, "eli") as eli:
        await eli.sign_in()
        assert (await eli.get("/hub/people"))[0] == 403
        fields = {"action": "invite", "user": "mallory", "projects": ""}
        assert (await eli.post("/hub/people", fields))[0] == 403
        promoted = {"action": "promote", "user": "eli"}
        assert (await eli.post("/hub/people", promoted))[0] == 403
    assert "mallory" not in accounts.all()
    assert not accounts.all()["eli"].admin


async def test_a_form_of_another_site_changes_nothing(stack: Stack, accounts: Accounts) -> None:
    accounts.add("fay", PASSWORD)
    async with browser(stack, "fay") as fay:
        await fay.sign_in()
        url = f"{stack.url}/hub/password"
        asked = {"old": PASSWORD, "new": NEW, "again": NEW}
        async with fay.session.post(url, data=asked) as answer:
            assert answer.status == 403
        assert await fay.sign_in(PASSWORD) == 200
