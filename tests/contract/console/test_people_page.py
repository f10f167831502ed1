"""The pages People and Directory groups."""

import pytest

from contract.console.site import Site, Visitor


@pytest.fixture
def people(site: Site) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = site.scheduler.people
    for number in range(60):
        name = f"user-{number:02}"
        found[name] = {"name": name, "state": "active", "sign_in": "local"}
    found["user-00"]["memberships"] = [
        {"project": "vision", "by_directory": True, "groups": ["vision-team"]},
        {"project": "speech"},
    ]
    found["root"] = {"name": "root", "state": "active", "sign_in": "local", "admin": True}
    return found


@pytest.mark.usefixtures("people")
async def test_people_are_found_and_paged(site: Site) -> None:
    async with Visitor(site, "root") as root:
        page = await root.get("people")
        assert "1 to 50 of 61" in page.words
        assert "vision directory group vision-team" in page.words
        assert "speech by hand" in page.words
        assert "Back" not in page.words
        assert "51 to 61 of 61" in (await root.get("people?first=50")).words
        assert "1 to 1 of 1" in (await root.get("people?search=user-59")).words
        assert (await root.get("people?first=x")).status == 400
        assert (await root.get("people?state=odd")).status == 400
        assert "Nobody is like that." in (await root.get("people?state=disabled")).words


async def test_an_invitation_is_shown_once(
    site: Site, people: dict[str, dict[str, object]]
) -> None:
    async with Visitor(site, "root") as root:
        fields = {"action": "invite", "user": "dora", "projects": "vision"}
        made = await root.post("people", fields)
        assert f"{site.origin}/hub/invitation?user=dora&token=once" in made.words
        assert people["dora"]["state"] == "invited"
        assert "token=once" not in (await root.get("people?search=dora")).words
        wrong = await root.post("people", fields | {"user": "Dora"})
        assert (wrong.status, "cannot be a user name" in wrong.words) == (422, True)


async def test_somebody_is_changed(site: Site, people: dict[str, dict[str, object]]) -> None:
    async with Visitor(site, "root") as root:
        for action, told in (
            ("disable", "user-01 is disabled"),
            ("enable", "user-01 may sign in again."),
            ("end-sessions", "user-01 has to sign in again."),
            ("promote", "user-01 administers the platform."),
        ):
            page = await root.post("people", {"action": action, "user": "user-01"})
            assert told in page.words
        assert people["user-01"]["admin"] is True
        fields = {"action": "projects", "user": "user-01", "projects": "vision, speech"}
        assert "The projects of user-01 are changed." in (await root.post("people", fields)).words
        own = await root.post("people", {"action": "disable", "user": "root"})
        assert (own.status, "Let another administrator" in own.words) == (422, True)
        gone = await root.post("people", {"action": "remove", "user": "user-01"})
        assert "user-01 is removed" in gone.words
        assert "user-01" not in people


async def test_groups_of_the_directory_are_mapped(site: Site) -> None:
    site.scheduler.directory_groups["it"] = {"group": "it", "admin": True, "source": "file"}
    async with Visitor(site, "root") as root:
        assert "changed there alone" in (await root.get("directory-groups")).words
        rule = {"group": "lab", "projects": "vision, speech", "role": "viewer"}
        wrong = await root.post("directory-groups", rule)
        assert (wrong.status, "expected a scope" in wrong.words) == (422, True)
        made = await root.post("directory-groups", rule | {"scope": "department/sciences"})
        assert "The rule of lab counts within minutes." in made.words
        assert "viewer in department/sciences" in made.words
        assert site.scheduler.directory_groups["lab"]["projects"] == ["vision", "speech"]
        gone = await root.post("directory-groups", {"action": "unmap", "group": "lab"})
        assert "lose what it gave" in gone.words
        assert "lab" not in site.scheduler.directory_groups


@pytest.mark.usefixtures("people")
@pytest.mark.parametrize("page", ["people", "directory-groups"])
async def test_others_do_not_see_people(site: Site, page: str) -> None:
    async with Visitor(site, "ada") as ada:
        assert "People" not in (await ada.get("access")).words
        if page == "people":
            assert (await ada.get(page)).status == 403
        before = str(site.scheduler.people)
        fields = {"action": "promote", "user": "ada", "group": "lab"}
        refused = await ada.post(page, fields, form_at="secrets")
        assert refused.status == {"people": 403, "directory-groups": 422}[page]
        assert "lab" not in site.scheduler.directory_groups
        assert str(site.scheduler.people) == before
