"""Routes are set by who has the token, lead where they should, and know when they were used."""

import asyncio
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from contract.proxy.running import PATIENCE_SECONDS, TOKEN, ProxyProcess, serving

HUB = {"Authorization": f"token {TOKEN}"}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "token guessed"}])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("GET", "/x"), ("POST", "/x"), ("DELETE", "/x")]
)
async def test_routes_are_for_the_hub_alone(
    proxy: ProxyProcess,
    person: aiohttp.ClientSession,
    headers: dict[str, str],
    method: str,
    path: str,
) -> None:
    async with person.request(
        method, proxy.api + path, headers=headers, json={"target": "http://127.0.0.1:1"}
    ) as answer:
        assert answer.status in (401, 403)


async def test_a_route_comes_and_goes(proxy: ProxyProcess, person: aiohttp.ClientSession) -> None:
    async def here(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    async with serving(web.get("/{path:.*}", here)) as target:
        await proxy.add("/comes", target, user="ada", server_name="")
        async with person.get(f"{proxy.api}/comes", headers=HUB) as answer:
            route = await answer.json()
        assert (route["target"], route["user"]) == (target, "ada")
        async with person.get(f"{proxy.url}/comes/and/goes") as answer:
            assert await answer.text() == "/comes/and/goes"
        async with person.delete(f"{proxy.api}/comes", headers=HUB) as answer:
            assert answer.status == 204
        async with person.get(f"{proxy.url}/comes/and/goes") as answer:
            assert answer.status == 404


async def test_the_longest_route_wins_whatever_is_escaped(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def long(request: web.Request) -> web.Response:
        return web.Response(text="long")

    async def short(request: web.Request) -> web.Response:
        return web.Response(text="short")

    async with (
        serving(web.get("/{path:.*}", short)) as one,
        serving(web.get("/{path:.*}", long)) as two,
    ):
        await proxy.add("/user", one)
        await proxy.add("/user/ada%40home", two)
        for path, text in (("/user/ada%40home/x", "long"), ("/user/ada@home", "long"),
                           ("/user/ada", "short")):  # fmt: skip
            async with person.get(proxy.url + path) as answer:
                assert await answer.text() == text


async def test_use_is_recorded_in_utc(proxy: ProxyProcess, person: aiohttp.ClientSession) -> None:
    async def answer_with(request: web.Request) -> web.Response:
        return web.Response(status=int(request.match_info["status"]))

    async with serving(web.get("/used/{status}", answer_with)) as target:
        await proxy.add("/used", target)
        added = await proxy.last_activity("/used")
        assert abs(datetime.now(UTC) - added) < timedelta(minutes=1)
        for status in (302, 404, 500):  # an endpoint that is down is not in use
            async with person.get(f"{proxy.url}/used/{status}", allow_redirects=False):
                pass
        assert await proxy.last_activity("/used") == added
        async with person.get(f"{proxy.url}/used/200") as answer:
            await answer.read()
        assert await proxy.last_activity("/used") > added


@pytest.mark.parametrize("zone", ["Z", "+00:00", ""])
async def test_unused_routes_are_found(
    proxy: ProxyProcess, person: aiohttp.ClientSession, zone: str
) -> None:
    await proxy.add("/idle", "http://127.0.0.1:1")
    used = await proxy.last_activity("/idle")
    for moment, found in ((used + timedelta(1), True), (used - timedelta(1), False)):
        since = moment.replace(tzinfo=None).isoformat() + zone
        async with person.get(proxy.api, headers=HUB, params={"inactive_since": since}) as answer:
            assert ("/idle" in await answer.json()) is found


def test_a_command_that_cannot_be_done_is_refused() -> None:
    command = [sys.executable, "-m", "carrel_hub.proxy", "--ssl-key", "key.pem"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 2
    assert "--ssl-key: not supported" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_at_once_with_a_request_open(
    tmp_path: Path, person: aiohttp.ClientSession, how: signal.Signals
) -> None:
    async def forever(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"1")
        await asyncio.Event().wait()
        return response

    pid_file = tmp_path / "pid"
    async with serving(web.get("/", forever)) as target:
        running = ProxyProcess(tmp_path, "--default-target", target, "--pid-file", str(pid_file))
        assert pid_file.read_text() == str(running.process.pid)
        async with person.get(running.url) as answer:
            assert await answer.content.readany() == b"1"
            running.process.send_signal(how)
            assert running.process.wait(PATIENCE_SECONDS) == 0
    assert not pid_file.exists()
    assert "Traceback" not in running.log.read_text()
