"""Sign-in with a real LDAP server: passwords, groups, removal, and a server that is away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from carrel_hub.directory.group_rules import GroupRule
from carrel_hub.scopes import ADMIN_GROUP
from contract.directory.directory_stack import DirectoryStack, becomes, browser, signed_in
from contract.directory.servers import ROOT, LdapServer, sentence
from contract.hub.stack import PASSWORD

GROUPS = {
    "staff": ["ada", "grace", "linus", "mary"],
    "vision-team": ["ada", "linus"],
    "speech-team": ["linus", "grace"],
    "it": ["root-of-it"],
    "visitors": ["guest"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LdapServer]:
    found = LdapServer(tmp_path_factory.mktemp("ldap"))
    found.start()
    try:
        found.fill(GROUPS)
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def stack(server: LdapServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectoryStack]:
    folder: Path = tmp_path_factory.mktemp("hub")
    with DirectoryStack(folder, server.settings) as running:
        yield running


async def test_who_is_in_a_group_is_a_member_of_its_project(stack: DirectoryStack) -> None:
    async with browser(stack, "Linus") as linus:
        assert await linus.sign_in() == 200
        assert await signed_in(linus)
    assert await stack.rights("linus") == ({"project-vision", "project-speech"}, False)
    async with browser(stack, "root-of-it") as admin:
        assert await admin.sign_in() == 200
    assert await stack.rights("root-of-it") == ({ADMIN_GROUP}, True)


@pytest.mark.parametrize("password", ["wrong", "", " "])
async def test_a_wrong_or_empty_password_is_refused(stack: DirectoryStack, password: str) -> None:
    async with browser(stack, "mary") as mary:
        await mary.sign_in(password)
        assert not await signed_in(mary)


@pytest.mark.parametrize("name", ["*", "ada)(uid=*", "ada*", "nobody-there"])
async def test_names_are_no_patterns(stack: DirectoryStack, name: str) -> None:
    async with browser(stack, name) as stranger:
        await stranger.sign_in()
        assert not await signed_in(stranger)


async def test_who_is_in_no_required_group_is_told_so(stack: DirectoryStack) -> None:
    async with browser(stack, "guest") as guest:
        await guest.get("/hub/login")
        status, page, _ = await guest.post(
            "/hub/login", {"username": "guest", "password": PASSWORD}
        )
        assert status == 403
        assert "guest is in none of the groups staff, it" in sentence(page)
    assert await stack.user("guest") == {}


async def test_leaving_a_group_takes_what_it_gave_and_nothing_else(
    stack: DirectoryStack, server: LdapServer
) -> None:
    async with browser(stack, "grace") as grace:
        assert await grace.sign_in() == 200
        await stack.add_by_hand("project-robotics", "grace")
        server.leave("speech-team", "grace")

        async def left() -> bool:
            return await stack.rights("grace") == ({"project-robotics"}, False)

        await becomes(left)
        assert await signed_in(grace)


async def test_a_change_of_the_table_is_applied_to_who_is_there(stack: DirectoryStack) -> None:
    async with browser(stack, "ada") as ada:
        assert await ada.sign_in() == 200
        stack.rules.put(GroupRule(group="staff", projects=["seminar"]))

        async def joined() -> bool:
            groups, _ = await stack.rights("ada")
            return groups == {"project-vision", "project-seminar"}

        await becomes(joined)
        stack.rules.remove("staff")

        async def left() -> bool:
            return (await stack.rights("ada"))[0] == {"project-vision"}

        await becomes(left)


async def test_a_server_that_is_away_changes_nothing_for_who_is_here(
    stack: DirectoryStack, server: LdapServer
) -> None:
    async with browser(stack, "ada") as ada, browser(stack, "mary") as mary:
        assert await ada.sign_in() == 200
        rights = await stack.rights("ada")
        server.stop()
        try:
            await stack_noticed(stack)
            assert await signed_in(ada)
            assert await stack.rights("ada") == rights
            await mary.get("/hub/login")
            status, page, _ = await mary.post(
                "/hub/login", {"username": "mary", "password": PASSWORD}
            )
            assert status == 503
            assert "The directory does not answer" in sentence(page)
        finally:
            server.start()
        assert await mary.sign_in() == 200


async def stack_noticed(stack: DirectoryStack) -> None:
    """Until the Hub asked in vain."""

    async def logged() -> bool:
        return "The directory does not answer, rights stay" in stack.log("hub")

    await becomes(logged)


async def test_a_name_of_two_entries_keeps_no_removal_of_others_from_counting(
    stack: DirectoryStack, server: LdapServer
) -> None:
    async with browser(stack, "ada") as ada, browser(stack, "grace") as grace:
        assert await ada.sign_in() == 200
        assert await grace.sign_in() == 200
        rights = await stack.rights("ada")
        twin = f"cn=second,ou=people,{ROOT}"
        about = {"sn": "ada", "cn": "second", "uid": "ada"}
        with server.connected() as connection:
            assert connection.add(twin, "inetOrgPerson", about), connection.result
        try:
            server.leave("staff", "grace")

            async def out() -> bool:
                return not await signed_in(grace)

            await becomes(out)
            assert await signed_in(ada)
            assert await stack.rights("ada") == rights
            assert "The directory does not answer, rights stay: 2" not in stack.log("hub")
        finally:
            with server.connected() as connection:
                assert connection.delete(twin), connection.result


async def test_who_is_removed_loses_everything(stack: DirectoryStack, server: LdapServer) -> None:
    async with browser(stack, "linus") as linus:
        assert await linus.sign_in() == 200
        server.remove("linus")

        async def gone() -> bool:
            return not await signed_in(linus)

        await becomes(gone)
        assert await stack.rights("linus") == (set(), False)
        await linus.sign_in()
        assert not await signed_in(linus)


async def test_secrets_are_in_no_log(stack: DirectoryStack) -> None:
    for file in stack.settings.log_dir.iterdir():
        text = file.read_text(errors="replace")
        assert PASSWORD not in text
        assert "looks-things-up" not in text
