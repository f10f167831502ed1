"""What reaches targets, what reaches browsers, and who may ask with a cookie."""

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from carrel.web_isolation import SANDBOX
from carrel_hub.gateway.headers import for_browser, for_target, from_same_origin

PREFIX = "/services/gateway/vision/tool"
FORWARDED = ("X-Forwarded-For", "X-Forwarded-Port", "X-Forwarded-Host")
BASE = "http://127.0.0.1:20000"


def answered(*pairs: tuple[str, str], keep: bool = False, sandboxed: bool = False) -> list[str]:
    found = for_browser(
        CIMultiDict(pairs), prefix=PREFIX, base=BASE, keep_prefix=keep, sandboxed=sandboxed
    )
    return [f"{name}: {value}" for name, value in found.items()]


def test_at_the_root_of_its_own_origin_a_target_keeps_its_cookies_and_redirects() -> None:
    given = CIMultiDict([("Set-Cookie", "own=1; Domain=example.org; Path=/app")], Location="/login")
    found = for_browser(given, prefix="", base=BASE, keep_prefix=False, sandboxed=False)
    assert dict(found) == {"Set-Cookie": "own=1; Path=/app", "Location": "/login"}
    stolen = CIMultiDict({"Set-Cookie": "__Host-carrel-gateway=x; Path=/; Secure"})
    assert not for_browser(stolen, prefix="", base=BASE, keep_prefix=False, sandboxed=False)


def told(*pairs: tuple[str, str]) -> dict[str, str]:
    request = make_mocked_request("GET", "/", headers=CIMultiDict(pairs))
    found = for_target(request, "ada", PREFIX)
    assert found.popall("X-Forwarded-Proto") == ["http"]
    return {name: value for name, value in found.items() if name not in FORWARDED}


def test_a_target_learns_who_asks_and_nothing_that_proves_it() -> None:
    assert told(
        ("Authorization", "token secret"),
        ("Cookie", "jupyterhub-session-id=a; own=1; carrel-gateway=b"),
        ("Cookie", "JupyterHub-hub-login=c;_xsrf=d; other=2"),
        ("x-forwarded-user", "root"),
        ("X-Forwarded-Prefix", "/evil"),
        ("Accept", "*/*"),
    ) == {
        "Cookie": "own=1; other=2",
        "X-Forwarded-User": "ada",
        "X-Forwarded-Prefix": PREFIX,
        "Accept": "*/*",
    }
    assert "Cookie" not in told(("Cookie", "service-console=x"))
    assert "Cookie" not in told(("Cookie", "__Host-carrel-gateway=x; __Host-jupyterhub=y"))


@pytest.mark.parametrize(
    ("given", "set_as"),
    [
        ("own=1; Path=/; HttpOnly", f"own=1; HttpOnly; Path={PREFIX}/"),
        ("own=1; Domain=example.org; Path=/hub/", f"own=1; Path={PREFIX}/"),
        (f"own=1; Path={PREFIX}/sub", f"own=1; Path={PREFIX}/sub"),
        (f"own=1; Path={PREFIX}-other/", f"own=1; Path={PREFIX}/"),
        ("_xsrf=1", f"_xsrf=1; Path={PREFIX}/"),
        ("jupyterhub-user-ada=1; Path=/", None),
        ("service-console=1", None),
        ("carrel-gateway=stolen", None),
        ("__Host-x=1; Secure; Path=/", None),
        ("no cookie", None),
    ],
)
def test_cookies_of_a_target_stay_below_its_path(given: str, set_as: str | None) -> None:
    assert answered(("Set-Cookie", given)) == ([f"Set-Cookie: {set_as}"] if set_as else [])


@pytest.mark.parametrize(
    ("location", "keep", "shown"),
    [
        ("/login?next=/", False, f"{PREFIX}/login?next=/"),
        (f"{BASE}/login", False, f"{PREFIX}/login"),
        (f"{PREFIX}/login", True, f"{PREFIX}/login"),
        ("sub/page", False, "sub/page"),
        ("//example.org/", False, "//example.org/"),
        ("https://example.org/", False, "https://example.org/"),
    ],
)
def test_redirects_stay_below_the_path(location: str, keep: bool, shown: str) -> None:
    assert answered(("Location", location), keep=keep) == [f"Location: {shown}"]


def test_what_reaches_beyond_the_path_is_left_out_and_foreign_pages_are_sandboxed() -> None:
    beyond = [("Clear-Site-Data", '"*"'), ("Service-Worker-Allowed", "/")]
    assert answered(*beyond) == []
    own = ("Content-Security-Policy", "default-src 'self'")
    assert answered(own, sandboxed=True) == [": ".join(own), f"Content-Security-Policy: {SANDBOX}"]
    assert "allow-same-origin" not in SANDBOX


@pytest.mark.parametrize(
    ("method", "headers", "websocket", "trusted"),
    [
        ("GET", {}, False, True),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False, True),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False, False),
        (
            "GET",
            {
                "Sec-Fetch-Site": "same-site",
                "Sec-Fetch-Mode": "navigate",
                "Sec-Fetch-Dest": "iframe",
            },
            False,
            False,
        ),
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, False, False),
        ("GET", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, False, True),
        ("GET", {"Sec-Fetch-Site": "none"}, False, True),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, True, False),
        ("GET", {"Origin": "http://hub", "Host": "hub"}, True, True),
        ("GET", {"Host": "hub"}, True, False),
        ("POST", {"Sec-Fetch-Site": "same-origin"}, False, True),
        ("POST", {"Sec-Fetch-Site": "none"}, False, False),
        ("DELETE", {"Origin": "http://hub:1", "Host": "hub"}, False, False),
        ("POST", {"Origin": "null", "Host": "hub"}, False, False),
    ],
)
def test_cookies_count_only_for_our_own_pages(
    method: str, headers: dict[str, str], websocket: bool, trusted: bool
) -> None:
    request = make_mocked_request(method, "/", headers=headers)
    assert from_same_origin(request, websocket=websocket) is trusted
