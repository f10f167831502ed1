"""What is seen where nothing is, or nothing answers."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from contract.proxy.running import ProxyProcess, serving

DOWN = "http://127.0.0.1:1"


@pytest.mark.parametrize(("path", "status"), [("/nothing", 404), ("/off/x", 503)])
async def test_without_a_page_of_somebody_there_is_a_sentence(
    proxy: ProxyProcess, person: aiohttp.ClientSession, path: str, status: int
) -> None:
    await proxy.add("/off", DOWN)
    async with person.get(f"{proxy.url}{path}?token=secret") as answer:
        assert answer.status == status
        assert (await answer.text()).startswith(f"{status}: ")
    assert "secret" not in proxy.log.read_text()


async def test_the_hub_makes_the_pages(tmp_path: Path, person: aiohttp.ClientSession) -> None:
    async def error(request: web.Request) -> web.Response:
        asked = f"{request.match_info['code']} {request.query['url']}"
        return web.Response(text=f"<h1>{asked}</h1>", content_type="text/html")

    async with serving(web.get("/hub/error/{code}", error)) as hub:
        running = ProxyProcess(tmp_path, "--error-target", f"{hub}/hub/error")
        try:
            await running.add("/off", DOWN)
            for path, status in (("/nothing", 404), ("/off/a%20b", 503)):
                async with person.get(running.url + path) as answer:
                    assert (answer.status, answer.content_type) == (status, "text/html")
                    assert await answer.text() == f"<h1>{status} {path}</h1>"
        finally:
            running.stop()


async def test_pages_from_a_folder(tmp_path: Path, person: aiohttp.ClientSession) -> None:
    (tmp_path / "404.html").write_text("<p>lost</p>")
    (tmp_path / "error.html").write_text("<p>broken</p>")
    running = ProxyProcess(tmp_path, "--error-path", str(tmp_path))
    try:
        await running.add("/off", DOWN)
        for path, status, text in (("/x", 404, "<p>lost</p>"), ("/off", 503, "<p>broken</p>")):
            async with person.get(running.url + path) as answer:
                assert (answer.status, await answer.text()) == (status, text)
    finally:
        running.stop()


async def test_a_hub_that_is_down_too_does_no_harm(
    tmp_path: Path, person: aiohttp.ClientSession
) -> None:
    running = ProxyProcess(tmp_path, "--default-target", DOWN, "--error-target", f"{DOWN}/error")
    try:
        async with person.get(running.url) as answer:
            assert answer.status == 503
            assert "does not answer" in await answer.text()
    finally:
        running.stop()


async def test_a_target_that_stays_silent_is_given_up_when_told_so(
    tmp_path: Path, person: aiohttp.ClientSession
) -> None:
    async def silent(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with serving(web.get("/", silent)) as target:
        running = ProxyProcess(tmp_path, "--default-target", target, "--timeout", "200")
        try:
            async with person.get(running.url) as answer:
                assert answer.status == 503
        finally:
            running.stop()


async def test_a_target_that_hangs_up_is_a_503(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with serving(web.post("/hang", hang_up)) as target:
        await proxy.add("/hang", target)
        async with person.post(f"{proxy.url}/hang", data=b"x") as answer:
            assert answer.status == 503
