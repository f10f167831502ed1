"""A browser that is signed in on the Hub's origin comes to the origin of a route: by a pass."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from cryptography.fernet import Fernet
from multidict import CIMultiDict

from carrel_hub.gateway.settings import GatewaySettings
from carrel_hub.gateway.signin import COOKIE, STATE_COOKIE, GatewaySignIn

HUB = "https://hub.example.org"
TOOL, EVIL = "tool--vision.hub.example.org", "evil--vision.hub.example.org"
NO_SESSION: Any = None


def sign_in(public_url: str = HUB) -> GatewaySignIn:
    settings = GatewaySettings(
        prefix="/services/gateway/",
        hub_prefix="/hub/",
        hub_api_url="http://127.0.0.1:8081/hub/api",
        host="127.0.0.1",
        port=8070,
        api_url="http://127.0.0.1:8000/services/carrel",
        client_id="service-gateway",
        public_url=public_url,
        token="secret",
    )
    return GatewaySignIn(settings, NO_SESSION, b"of the gateway")


class Browser:
    """Keeps cookies by host, all of which are said to be of the host alone."""

    def __init__(self) -> None:
        self.cookies: dict[str, dict[str, str]] = {}

    def request(self, url: str) -> web.Request:
        parts = urlsplit(url)
        kept = self.cookies.get(parts.netloc, {})
        headers = CIMultiDict({"Host": parts.netloc})
        if kept:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in kept.items())
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        return make_mocked_request("GET", path, headers=headers)

    def take(self, url: str, response: web.Response) -> str:
        for morsel in response.cookies.values():
            assert morsel["httponly"]
            assert morsel["secure"]
            assert morsel["samesite"] == "Lax"
            assert not morsel["domain"]
            self.cookies.setdefault(urlsplit(url).netloc, {})[morsel.key] = morsel.value
        return str(response.headers.get("Location", ""))


def come(browser: Browser, ours: GatewaySignIn, host: str, token: str = "token") -> str:
    """To where a pass is handed in; the browser is signed in on the Hub's origin."""
    asked = f"https://{host}/page?a=b"
    to = browser.take(asked, ours.begin(browser.request(asked)))
    assert to.startswith(f"{HUB}/services/gateway/enter?")
    return browser.take(to, ours.issue_pass(browser.request(to), token))


def test_a_pass_becomes_a_cookie_of_this_host_and_the_page_comes_back() -> None:
    browser, ours = Browser(), sign_in()
    enter = come(browser, ours, TOOL)
    assert enter.startswith(f"https://{TOOL}/.carrel/enter?pass=")
    assert browser.take(enter, ours.enter(browser.request(enter))) == "/page?a=b"
    there = browser.cookies[TOOL]
    assert there.keys() >= {f"__Host-{COOKIE}"}
    assert "token" not in there[f"__Host-{COOKIE}"]
    assert ours.token(browser.request(f"https://{TOOL}/")) == "token"


def test_a_cookie_of_one_host_is_worth_nothing_at_another() -> None:
    browser, ours = Browser(), sign_in()
    enter = come(browser, ours, EVIL)
    browser.take(enter, ours.enter(browser.request(enter)))
    browser.cookies[TOOL] = browser.cookies[EVIL]
    assert ours.token(browser.request(f"https://{TOOL}/")) == ""
    value = browser.cookies[EVIL][f"__Host-{COOKIE}"]
    browser.cookies["hub.example.org"] = {COOKIE: value}
    assert ours.token(browser.request(f"{HUB}/services/gateway/x/y/")) == ""


def test_a_pass_is_no_cookie() -> None:
    browser, ours = Browser(), sign_in()
    stolen = parse_qs(urlsplit(come(browser, ours, TOOL)).query)["pass"][0]
    browser.cookies[TOOL] = {f"__Host-{COOKIE}": stolen}
    assert ours.token(browser.request(f"https://{TOOL}/")) == ""


def test_a_pass_is_good_once() -> None:
    browser, ours = Browser(), sign_in()
    enter = come(browser, ours, TOOL)
    request = browser.request(enter)
    assert ours.enter(request).status == 302
    assert ours.enter(request).status == 400


def test_a_pass_is_good_for_its_origin_only() -> None:
    browser, ours = Browser(), sign_in()
    stolen = come(browser, ours, EVIL)
    come(browser, ours, TOOL)
    elsewhere = stolen.replace(EVIL, TOOL)
    assert ours.enter(browser.request(elsewhere)).status == 400


def test_a_pass_is_good_in_the_browser_that_began_the_sign_in_only() -> None:
    browser, ours = Browser(), sign_in()
    enter = come(browser, ours, TOOL)
    assert ours.enter(Browser().request(enter)).status == 400
    other = Browser()
    come(other, ours, TOOL)
    assert ours.enter(other.request(enter)).status == 400


def test_a_pass_is_good_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    browser, ours = Browser(), sign_in()
    enter = come(browser, ours, TOOL)
    decrypt = Fernet.decrypt
    monkeypatch.setattr(
        Fernet, "decrypt", lambda self, token, ttl: decrypt(self, token, ttl=ttl - 61)
    )
    assert ours.enter(browser.request(enter)).status == 400


@pytest.mark.parametrize(
    "at", ["", "ada", "evil.org/--", "x--y.evil.org", "-x--y", "tool--vision:80"]
)
def test_passes_are_handed_to_origins_of_routes_only(at: str) -> None:
    request = make_mocked_request("GET", f"/services/gateway/enter?at={at}&state=s")
    assert sign_in().issue_pass(request, "token").status == 400


def test_where_a_sign_in_leads_back_to_is_a_path() -> None:
    browser, ours = Browser(), sign_in()
    asked = f"https://{TOOL}//evil.org/page"
    to = browser.take(asked, ours.begin(browser.request(asked)))
    enter = browser.take(to, ours.issue_pass(browser.request(to), "token"))
    assert browser.take(enter, ours.enter(browser.request(enter))) == "/evil.org/page"


def test_on_the_hubs_origin_the_hub_signs_in() -> None:
    for public_url in ("", HUB):
        ours = sign_in(public_url)
        request = make_mocked_request("GET", "/services/gateway/enter?at=x--y&state=s",
                                      headers={"Host": "hub.example.org"})  # fmt: skip
        to = ours.begin(request).headers["Location"]
        assert to.startswith("/hub/api/oauth2/authorize?")
        state = parse_qs(urlsplit(to).query)["state"][0]
        assert state != "s"
        assert STATE_COOKIE in ours.begin(request).cookies
