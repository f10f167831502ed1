"""Sign-in with a provider of OpenID Connect: the whole way through its page, groups, refusals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from carrel_hub.scopes import ADMIN_GROUP
from contract.directory.directory_stack import DirectoryStack, becomes, browser, signed_in
from contract.directory.servers import OidcProvider, sentence


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    found = OidcProvider(tmp_path_factory.mktemp("oidc"))
    found.start()
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def stack(
    provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DirectoryStack]:
    folder: Path = tmp_path_factory.mktemp("hub")
    with DirectoryStack(folder, provider.settings) as running:
        yield running


async def test_sign_in_brings_projects_and_rights(
    stack: DirectoryStack, provider: OidcProvider
) -> None:
    await provider.put("1001", "Ada@example.org", ["staff", "vision-team"])
    await provider.put("1002", "chief", ["it"])
    async with browser(stack, "ada") as ada:
        status, _ = await provider.sign_in(ada, "1001")
        assert status == 200
        assert await signed_in(ada)
    assert await stack.rights("ada") == ({"project-vision"}, False)
    async with browser(stack, "chief") as chief:
        assert (await provider.sign_in(chief, "1002"))[0] == 200
    assert await stack.rights("chief") == ({ADMIN_GROUP}, True)


async def test_the_table_and_numbers_come_by_claims(
    stack: DirectoryStack, provider: OidcProvider
) -> None:
    stack.give("lab", projects=["speech"], role="viewer", scope="department/arts")
    numbers = {"uid_number": 2100, "gid_number": "3100", "gid_numbers": [3100, 3101, 4]}
    await provider.put("1010", "kay", ["staff", "lab"], **numbers)
    async with browser(stack, "kay") as kay:
        assert (await provider.sign_in(kay, "1010"))[0] == 200
        assert await stack.rights("kay") == ({"project-speech", "directory-lab"}, False)
        told = stack.fake.identities["kay"]
        assert (told["uid"], told["gid"], list(told["gids"])) == (2100, 3100, [3101])
        stack.take("lab")

        async def left() -> bool:
            return await stack.rights("kay") == (set(), False)

        await becomes(left)
        assert await signed_in(kay)


async def test_another_person_with_the_same_name_is_refused(
    stack: DirectoryStack, provider: OidcProvider
) -> None:
    await provider.put("1003", "grace", ["staff"])
    await provider.put("6666", "GRACE", ["staff", "it"])
    async with browser(stack, "grace") as grace, browser(stack, "grace") as other:
        assert (await provider.sign_in(grace, "1003"))[0] == 200
        status, page = await provider.sign_in(other, "6666")
        assert status == 403
        assert "The user name grace is another person's" in sentence(page)
        assert not await signed_in(other)
    assert await stack.rights("grace") == (set(), False)


@pytest.mark.parametrize("name", ["root", "../../etc", "carrel-hub", "", "ada@elsewhere.org"])
async def test_names_that_cannot_be_ours_are_refused(
    stack: DirectoryStack, provider: OidcProvider, name: str
) -> None:
    await provider.put("1004", name, ["staff"])
    async with browser(stack, "x") as somebody:
        status, page = await provider.sign_in(somebody, "1004")
        assert status == 403
        assert "Ask an admin." in sentence(page)


async def test_who_is_in_no_required_group_is_refused(
    stack: DirectoryStack, provider: OidcProvider
) -> None:
    await provider.put("1005", "guest", ["visitors"])
    async with browser(stack, "guest") as guest:
        status, page = await provider.sign_in(guest, "1005")
        assert status == 403
        assert "none of the groups staff, it" in sentence(page)


async def test_a_change_of_groups_arrives_while_the_session_lasts(
    stack: DirectoryStack, provider: OidcProvider
) -> None:
    await provider.put("1006", "linus", ["staff", "speech-team"])
    async with browser(stack, "linus") as linus:
        assert (await provider.sign_in(linus, "1006"))[0] == 200
        assert await stack.rights("linus") == ({"project-speech"}, False)
        await provider.put("1006", "linus", ["staff"])

        async def left() -> bool:
            return await stack.rights("linus") == (set(), False)

        await becomes(left)
        assert await signed_in(linus)
        await provider.put("1006", "linus", [])

        async def out() -> bool:
            return not await signed_in(linus)

        await becomes(out)


async def test_who_may_not_come_any_more_has_to_sign_in_again(
    stack: DirectoryStack, provider: OidcProvider
) -> None:
    await provider.put("1007", "mary", ["staff", "vision-team"])
    async with browser(stack, "mary") as mary:
        assert (await provider.sign_in(mary, "1007"))[0] == 200
        await provider.revoke("1007")

        async def out() -> bool:
            return not await signed_in(mary)

        await becomes(out)


async def test_a_provider_that_is_away_changes_nothing_for_who_is_here(
    stack: DirectoryStack, provider: OidcProvider
) -> None:
    await provider.put("1008", "emmy", ["staff", "vision-team"])
    async with browser(stack, "emmy") as emmy:
        assert (await provider.sign_in(emmy, "1008"))[0] == 200
        provider.stop()
        try:

            async def noticed() -> bool:
                return "The directory does not answer, rights stay" in stack.log("hub")

            await becomes(noticed)
            assert await signed_in(emmy)
            assert await stack.rights("emmy") == ({"project-vision"}, False)
        finally:
            provider.start()


async def test_secrets_are_in_no_log(stack: DirectoryStack) -> None:
    for file in stack.settings.log_dir.iterdir():
        assert "of-the-client" not in file.read_text(errors="replace")
