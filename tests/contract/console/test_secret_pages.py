"""Named secrets in the console: values go in and never come out."""

from collections.abc import AsyncIterator

import pytest

from contract.console.site import Site, Visitor

PLANTED = " planted-5150 "


@pytest.fixture
async def ada(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "ada") as visitor:
        yield visitor


def typed(**more: str) -> dict[str, str]:
    return {"name": "hub", "scope": "user/ada", "key-0": "TOKEN", "value-0": PLANTED} | more


async def test_a_secret_is_written_added_to_and_deleted(site: Site, ada: Visitor) -> None:
    saved = await ada.post("secrets", typed())
    assert "hub of user/ada was saved." in saved.words
    more = await ada.post("secrets", typed(**{"key-0": "USER", "value-0": "ada"}))
    assert "TOKEN, USER" in more.words
    assert PLANTED.strip() not in saved.text + more.text
    form = await ada.get("secrets?name=hub&scope=user/ada&type=generic")
    assert 'name="name" type="text" value="hub"' in form.text
    gone = await ada.post("secrets", {"action": "delete", "name": "hub", "scope": "user/ada"})
    assert "was deleted" in gone.words
    assert site.scheduler.documents == {}


async def test_what_is_wrong_is_told_without_the_value(site: Site, ada: Visitor) -> None:
    nameless = await ada.post("secrets", typed(**{"key-0": ""}))
    assert (nameless.status, "Name the key of this value." in nameless.words) == (422, True)
    empty = await ada.post("secrets", typed(**{"key-0": "", "value-0": ""}))
    assert "Name at least one key." in empty.words
    foreign = await ada.post("secrets", typed(scope="platform"))
    assert (foreign.status, "Only administrators" in foreign.words) == (422, True)
    assert PLANTED.strip() not in nameless.text + empty.text + foreign.text
    assert site.scheduler.documents == {}
