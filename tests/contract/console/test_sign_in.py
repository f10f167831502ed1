"""Who gets in: the Hub decides who somebody is, the scheduler what they may, forms need a token."""

from carrel.testing import FakeScheduler
from contract.console.fake_hub import SERVICE_TOKEN
from contract.console.site import PREFIX, Clock, Site, Visitor


async def test_browsers_are_sent_to_sign_in_and_come_back_to_their_page(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        page = await visitor.get("queue?x=1")
        assert page.address == site.url("queue?x=1")
        assert ">ada</span>" in page.text


async def test_nothing_is_shown_without_signing_in(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        for path in ("", "events", "jobs/vision/train-7"):
            page = await visitor.get(path, Sec_Fetch_Mode="cors")
            assert page.status == 401
            assert "You are signed out" in page.words
            assert "train" not in page.words


async def test_the_scheduler_is_asked_with_the_users_token_only(site: Site) -> None:
    async with Visitor(site, "ben") as visitor:
        page = await visitor.get("jobs/vision/train-7")
        assert page.status == 404
        assert "a project that you are not in" in page.words
        assert "train-7" not in (await visitor.get("jobs")).words
    with FakeScheduler(people={SERVICE_TOKEN: ["vision"]}, tcp=True) as other:
        # A scheduler that knows no user's token: the console has nothing else to show.
        async with (
            Site(other, site.clock, api_url=other.url) as lonely,
            Visitor(lonely, "ada") as visitor,
        ):
            page = await visitor.get()
            assert page.status == 401
            assert "You are signed out" in page.words


async def test_cookies_are_bound_to_the_console(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        await visitor.get()
        cookies = {cookie.key: cookie for cookie in visitor.session.cookie_jar}
        assert {"_xsrf", "service-console"} <= set(cookies)
        for cookie in cookies.values():
            assert cookie["path"].rstrip("/") == PREFIX.rstrip("/")
            assert cookie["httponly"]
            assert cookie["samesite"] == "Lax"
            assert "token-of-ada" not in cookie.value


async def test_no_form_without_its_token(site: Site) -> None:
    forms = {
        "submit": {"name": "x", "project": "vision", "command": "true"},
        "jobs/vision/train-7/suspend": {},
        "jobs/vision/train-7/resume": {},
        "jobs/vision/train-7/extend": {},
        "jobs/vision/train-7/delete": {},
        "projects/vision": {"action": "save"},
        "projects/vision/members/add": {"user": "eve"},
        "projects/vision/members/remove": {"user": "ada"},
        "projects/vision/delete": {},
        "new-project": {"name": "x"},
    }
    async with Visitor(site, "root") as visitor, Visitor(site, "ada") as other:
        await visitor.get()
        stolen = await other.token("submit")
        for path, data in forms.items():
            for token in ("", "guessed", stolen):
                page = await visitor.post(path, data, xsrf=token)
                assert page.status == 403, path
                assert "This form is out of date" in page.words
    asked = site.scheduler.requests
    assert [method for method, _ in asked if method != "GET"] == []


async def test_pages_cannot_be_read_by_scripts_of_other_services(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        token = await visitor.token("submit")
        refused = await visitor.get("", Sec_Fetch_Mode="cors", Sec_Fetch_Site="same-origin")
        assert refused.status == 401
        allowed = await visitor.get("", Sec_Fetch_Mode="cors", X_XSRFToken=token)
        assert allowed.status == 200


async def test_refusals_of_the_scheduler_pass_through(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        token = await visitor.token("submit")
        for path, data in {
            "projects/vision/members/add": {"user": "eve"},
            "projects/vision/delete": {},
            "projects/vision": {"action": "save", "quota_gpus": "99"},
            "new-project": {"name": "mine"},
        }.items():
            page = await visitor.post(path, data, xsrf=token)
            assert page.status == 403, path
            assert "Only an administrator may do this." in page.words
        assert (await visitor.get("projects/speech")).status == 404
        assert (await visitor.get("jobs/vision/nothing")).status == 404
        assert (await visitor.get("jobs/vision/..%2f..%2fprojects")).status == 404
    assert site.scheduler.project("vision")["quota"]["gpus"] == 4


async def test_members_of_nothing_at_the_hub_are_refused(site: Site) -> None:
    site.hub.scopes = []
    async with Visitor(site, "ada") as visitor:
        page = await visitor.get()
        assert page.status == 403
        assert "ada may not use the console" in page.words.lower()


async def test_a_revoked_token_ends_the_sign_in(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        await visitor.get()
        site.hub.revoked.add("token-of-ada")
        site.app.console.hub_auth.cache.clear()
        page = await visitor.get("", Sec_Fetch_Mode="cors", X_XSRFToken="any")
        assert page.status == 401


async def test_signing_in_again_forgets_the_old_token(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        await visitor.get()
        visitor.who = "ben"
        assert ">ada</span>" in (await visitor.get()).text
        page = await visitor.get("sign-in")
        assert page.address == site.url()
        assert ">ben</span>" in page.text


async def test_an_absent_scheduler_is_explained() -> None:
    with FakeScheduler(tcp=True) as fake:
        gone = "http://127.0.0.1:9/services/carrel"
        async with Site(fake, Clock(), api_url=gone) as site, Visitor(site, "ada") as visitor:
            page = await visitor.get("queue")
            assert page.status == 503
            assert "What runs goes on running" in page.words
            assert f'href="{PREFIX}queue">Try again</a>' in page.text
