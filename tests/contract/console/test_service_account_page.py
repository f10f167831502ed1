"""The page of service accounts: made, given tokens that are shown once, and deleted."""

from contract.console.site import Site, Visitor


async def test_an_account_gets_a_token_that_is_shown_once(site: Site) -> None:
    async with Visitor(site, "root") as root:
        empty = await root.get("service-accounts")
        assert "There are no service accounts in the scopes that you administer" in empty.words
        asked = {"action": "save", "name": "nightly", "scope": "project/vision"}
        made = await root.post("service-accounts", asked | {"description": "The <pipeline>"})
        assert "The service account nightly is saved." in made.words
        assert "The <pipeline>" in made.words
        assert "none: nothing can ask as it" in made.words
        told = await root.post(
            "service-accounts", {"action": "token", "name": "nightly", "days": "7"}
        )
        assert "once-nightly" in told.words
        assert (told.headers["Cache-Control"], told.status) == ("no-store", 200)
        again = await root.get("service-accounts")
        assert "once-nightly" not in again.words
        assert "expires in 7 d" in again.words
        assert "not used yet" in again.words
        revoked = await root.post(
            "service-accounts", {"action": "revoke", "name": "nightly", "token": "t1"}
        )
        assert "The token of nightly is revoked" in revoked.words
        await root.post("service-accounts", {"action": "delete", "name": "nightly"})
        assert site.scheduler.service_accounts == {}


async def test_what_is_wrong_is_said_at_its_field(site: Site) -> None:
    async with Visitor(site, "root") as root:
        asked = {"action": "save", "name": "nightly", "scope": "user/ada"}
        wrong = await root.post("service-accounts", asked)
        assert (wrong.status, "This should be platform" in wrong.words) == (422, True)
        blank = await root.post("service-accounts", {"action": "save", "name": "nightly"})
        assert (blank.status, "Please fill this in." in blank.words) == (422, True)
        asked["scope"] = "platform"
        await root.post("service-accounts", asked)
        for days in ("0.5", "900"):
            token = {"action": "token", "name": "nightly", "days": days}
            assert (await root.post("service-accounts", token)).status == 422
        unknown = await root.post("service-accounts", {"action": "sing", "name": "nightly"})
        assert unknown.status == 400


async def test_a_role_is_offered_for_the_account(site: Site) -> None:
    async with Visitor(site, "root") as root:
        await root.post(
            "service-accounts", {"action": "save", "name": "nightly", "scope": "project/vision"}
        )
        page = await root.get("service-accounts")
        assert (
            "access?subject=nightly&amp;subject_kind=service-account&amp;scope=project%2Fvision"
            in page.text.replace("project/vision", "project%2Fvision")
        )
        form = await root.get("access?subject=nightly&subject_kind=service-account&scope=platform")
        assert 'value="nightly"' in form.text
        assert '<option value="service-account" selected>' in form.text


async def test_who_administers_nothing_is_not_offered_it(site: Site) -> None:
    async with Visitor(site, "ada") as ada:
        page = await ada.get("service-accounts")
        assert "Make a service account" not in page.words
        body = {"action": "save", "name": "mine", "scope": "project/vision"}
        refused = await ada.post("service-accounts", body, form_at="secrets")
        assert refused.status == 422
        assert "service-accounts:update" in refused.words
        assert "service-accounts" not in (await ada.get("access")).text.split("</nav>")[1]
