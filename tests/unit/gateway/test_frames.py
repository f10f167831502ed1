"""A TensorBoard may be shown in a frame of its visitor's own servers, and nothing else may."""

from typing import Any, ClassVar

import pytest
from aiohttp.test_utils import make_mocked_request

from carrel_hub.gateway.access import AccessControl, RouteMatch
from carrel_hub.gateway.headers import for_browser
from carrel_hub.gateway.identity import GatewayPrincipal
from carrel_hub.gateway.responses import EarlyResponse
from carrel_hub.gateway.routing import RoutedWorkload
from carrel_schema.sections import Route
from unit.gateway.test_signin import Browser, come, sign_in

BOARD, TOOL = "board--vision.hub.example.org", "tool--vision.hub.example.org"
FRAME = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
TARGETS: dict[str, Any] = {}


def routed(name: str, kind: str) -> RoutedWorkload:
    routes = {"main": Route(port=6006, access="project")}
    facts: dict[str, Any] = {
        "uid": name,
        "version": 1,
        "project": "vision",
        "name": name,
        "user": "ada",
    }
    return RoutedWorkload(
        **facts, kind=kind, phase="running", reason=None, routes=routes, targets=TARGETS
    )


class Table:
    """What is there: a TensorBoard and another program of one project."""

    known: ClassVar = {"board": routed("board", "tensorboard"), "tool": routed("tool", "training")}

    def at_origin(self, label: str) -> tuple[RoutedWorkload | None, str]:
        return self.known.get(label.partition("--")[0]), "main"


class Tokens:
    """Each token is a name; only ada is in the project."""

    async def principal(self, token: str) -> GatewayPrincipal:
        projects = frozenset({"vision"} if token == "ada" else {})
        return GatewayPrincipal(
            token, is_user=True, projects=projects, scopes=frozenset({"access:services"})
        )


async def look(host: str, headers: dict[str, str], user: str = "ada") -> RouteMatch:
    """What somebody who is signed in there gets. Raises ``EarlyResponse``."""
    ours, browser = sign_in(), Browser()
    enter = come(browser, ours, host, token=user)
    browser.take(enter, ours.enter(browser.request(enter)))
    cookies = browser.cookies[host]
    pairs = "; ".join(f"{key}={value}" for key, value in cookies.items())
    sent = {"Host": host, "Cookie": pairs} | headers
    parts: Any = (ours._settings, Tokens(), ours, Table())
    return await AccessControl(*parts).match(make_mocked_request("GET", "/", headers=sent))


async def test_a_tensorboard_is_shown_in_a_frame_of_its_visitors_own_servers() -> None:
    match = await look(BOARD, FRAME)
    assert match.framed_by == "https://ada.hub.example.org"
    headers = for_browser(
        make_mocked_request("GET", "/").headers,
        prefix=match.prefix,
        base="http://127.0.0.1:1",
        keep_prefix=False,
        sandboxed=False,
        framed_by=match.framed_by,
    )
    policy = "frame-ancestors 'self' https://ada.hub.example.org"
    assert headers.getall("Content-Security-Policy") == [policy]


@pytest.mark.parametrize(
    ("host", "headers", "user", "code"),
    [
        (TOOL, FRAME, "ada", "cross_site"),
        (BOARD, FRAME | {"Sec-Fetch-Dest": "embed"}, "ada", "cross_site"),
        (BOARD, FRAME | {"Sec-Fetch-Mode": "no-cors"}, "ada", "cross_site"),
        (BOARD, FRAME | {"Sec-Fetch-Site": "cross-site"}, "ada", "cross_site"),
        (BOARD, FRAME, "mallory", "not_shared"),
        ("nothing--vision.hub.example.org", FRAME, "mallory", "not_shared"),
        (TOOL, FRAME, "mallory", "not_shared"),
    ],
)
async def test_nothing_else_is(host: str, headers: dict[str, str], user: str, code: str) -> None:
    wanted = {"Accept": "application/json"}
    with pytest.raises(EarlyResponse) as refused:
        await look(host, headers | wanted, user)
    assert refused.value.response.status == 403
    words = {"cross_site": "page of another site", "not_shared": "nothing here that is shared"}
    assert words[code] in str(refused.value.response.text)


async def test_other_programs_say_nothing_of_frames() -> None:
    assert (await look(TOOL, {})).framed_by == ""
