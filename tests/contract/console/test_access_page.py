"""The page Access: one's own roles, and rules that who administers a scope gives and takes."""

import pytest

from contract.console.site import Site, Visitor


async def test_roles_are_given_and_taken(site: Site) -> None:
    async with Visitor(site, "root") as root:
        empty = await root.get("access")
        assert "There are no access rules in your scopes yet" in empty.words
        asked = {"subject": "ada", "role": "viewer", "scope": "project/vision"}
        given = await root.post("access", asked)
        assert "ada is viewer in project/vision." in given.words
        wrong = await root.post("access", asked | {"role": "administrator"})
        assert (wrong.status, "This should be platform" in wrong.words) == (422, True)
        blank = await root.post("access", {"role": "viewer"})
        assert blank.status == 422
        [rule] = site.scheduler.access_rules
        taken = await root.post(
            "access", {"action": "revoke", "rule": rule["id"], "subject": "ada", "role": "viewer"}
        )
        assert "ada is no viewer any more." in taken.words
        assert site.scheduler.access_rules == []


async def test_who_governs_nothing_sees_their_own_roles(site: Site) -> None:
    async with Visitor(site, "ada") as ada:
        page = await ada.get("access")
        assert "researcher" in page.words
        assert "Give a role" not in page.words
        body = {"subject": "bea", "role": "viewer", "scope": "platform"}
        refused = await ada.post("access", body, form_at="secrets")
        assert (refused.status, "access-rules:update" in refused.words) == (422, True)


@pytest.mark.parametrize(("who", "offered"), [("ada", False), ("root", True)])
@pytest.mark.parametrize("page", ["access", "policies", "secrets", "usage"])
async def test_the_audit_log_is_offered_to_who_may_read_it(
    site: Site, page: str, who: str, offered: bool
) -> None:
    async with Visitor(site, who) as visitor:
        assert ("Audit log" in (await visitor.get(page)).words) is offered
