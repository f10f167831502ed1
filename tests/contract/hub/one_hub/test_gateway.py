"""Browsers at the gateway: the Hub's sign-in, one origin shared by programs of many people."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from aiohttp import web
from yarl import URL

from carrel.web_isolation import SANDBOX
from contract.hub.stack import TIMEOUT_SECONDS, Person, Stack, person

PAGE = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate"}


@dataclass(frozen=True)
class Tool:
    """Something of ada's on a port, shared with her project as ``~shared``."""

    stack: Stack
    path: str


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Iterator[Stack]:
    stack.start("gateway")
    yield stack
    stack.stop("gateway")


@pytest.fixture
async def tool(gateway: Stack) -> AsyncIterator[Tool]:
    """A web page that ada's workspace serves."""

    async def answer(request: web.Request) -> web.Response:
        told = {"cookies": request.headers.get("Cookie", ""), "path": request.raw_path}
        return web.json_response(told | {"user": request.headers["X-Forwarded-User"]})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    routes = [
        {"name": "", "access": "user", "keep_prefix": True},
        {"name": "shared", "access": "project"},
    ]
    task = {"index": 0, "node": "here", "ports": {"main": port, "shared": port}}
    fake, name = gateway.fake, f"tool-{port}"
    await asyncio.to_thread(fake.submit, "vision", name, "ada", routes=routes)
    await asyncio.to_thread(fake.status, "vision", name, phase="running", tasks=[task])
    yield Tool(gateway, f"/services/gateway/vision/{name}")
    await runner.cleanup()


async def look(somebody: Person, path: str, **headers: str) -> tuple[int, str, str]:
    """A page in the browser: status, text, policy."""
    url = somebody.stack.url + path
    async with somebody.session.get(url, headers=PAGE | headers) as answer:
        policy = answer.headers.get("Content-Security-Policy", "")
        return answer.status, await answer.text(), policy


async def until_there(somebody: Person, tool: Tool) -> None:
    """Until the gateway has heard of the tool."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await look(somebody, f"{tool.path}/"))[0] in (404, 502, 503):  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.1)


async def test_a_browser_signs_in_and_sees_what_is_its_own(tool: Tool) -> None:
    async with person(tool.stack, "ada") as ada:
        await until_there(ada, tool)
        status, text, policy = await look(ada, f"{tool.path}/a?b=1")
        assert (status, policy) == (200, SANDBOX)
        assert f'"path": "{tool.path}/a?b=1"' in text
        assert '"user": "ada"' in text
        assert '"cookies": ""' in text
        status, text, _ = await look(ada, tool.path)
        assert f'"path": "{tool.path}/"' in text
        names = {cookie.key for cookie in ada.session.cookie_jar}
        assert "carrel-gateway" in names


async def test_a_colleagues_program_is_there_only_where_it_is_shared(
    tool: Tool,
) -> None:
    async with person(tool.stack, "ada") as ada, person(tool.stack, "linus") as linus:
        await until_there(ada, tool)
        status, text, _ = await look(linus, f"{tool.path}/")
        assert (status, "shared with linus" in text) == (403, True)
        status, text, policy = await look(linus, f"{tool.path}/~shared/x")
        assert (status, policy) == (200, SANDBOX)
        assert '"path": "/x"' in text
    async with person(tool.stack, "grace") as grace:
        assert (await look(grace, f"{tool.path}/~shared/"))[0] == 403


async def test_a_cookie_signs_in_nothing_that_another_site_asks_for(tool: Tool) -> None:
    async with person(tool.stack, "ada") as ada:
        await until_there(ada, tool)
        url = f"{tool.stack.url}{tool.path}/"
        for headers, status in (
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Origin": tool.stack.url}, 200),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({}, 403),
        ):
            async with ada.session.post(url, headers=headers) as answer:
                assert answer.status == status, headers


async def test_who_signs_out_of_the_hub_is_out(tool: Tool) -> None:
    async with person(tool.stack, "ada") as ada:
        await until_there(ada, tool)
        before = ada.session.cookie_jar.filter_cookies(URL(f"{tool.stack.url}{tool.path}/"))
        assert "carrel-gateway" in before
        await ada.get("/hub/logout")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                url = f"{tool.stack.url}{tool.path}/"
                async with ada.session.get(url, headers=PAGE, allow_redirects=False) as answer:
                    if answer.status == 302:
                        break
                await asyncio.sleep(0.5)
        assert "oauth2/authorize" in answer.headers["Location"]


async def test_the_callback_takes_only_what_was_begun_here(tool: Tool) -> None:
    async with person(tool.stack, "ada") as ada:
        await until_there(ada, tool)
        status, text = await ada.get("/services/gateway/oauth_callback?code=x&state=y")
        assert (status, "not begun here" in text) == (400, True)
