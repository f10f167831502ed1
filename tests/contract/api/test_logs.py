"""Logs: pieces as they come, back-pressure, and ends on both sides."""

import asyncio

import aiohttp
import pytest

from contract.api.fakes import person
from contract.api.service import PATIENCE_SECONDS, ROOT, Desk

PATH = "/workloads/vision/train-1/logs"


async def test_a_log_is_text(desk: Desk) -> None:
    reply = await desk.ask("GET", f"{PATH}?tail=10&timestamps=true")
    assert (reply.status, reply.raw) == (200, b"one\ntwo\n")
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert desk.engine.asked == {"tail": 10, "follow": False, "timestamps": True}
    await desk.until(lambda: desk.engine.closed_logs == 1)


async def test_a_task_that_never_ran_has_no_log(desk: Desk) -> None:
    reply = await desk.ask("GET", f"{PATH}?index=7")
    assert (reply.status, reply.code) == (404, "no_logs")


@pytest.mark.parametrize("pieces", [[b"one\n"], []])
async def test_following_ends_when_the_listener_goes_away(desk: Desk, pieces: list[bytes]) -> None:
    desk.engine.pieces = pieces
    headers = {"Authorization": "token ada-token"}
    url = f"{desk.url}{ROOT}{PATH}?follow=true"
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        desk.session.get(url, headers=headers) as response,
    ):
        assert response.status == 200
        if pieces:
            assert await response.content.readany() == b"one\n"
        assert desk.engine.closed_logs == 0
    await desk.until(lambda: desk.engine.closed_logs == 1)


@pytest.mark.parametrize("how", ["revoked", "left"])
async def test_following_ends_with_the_right_to_it(desk: Desk, how: str) -> None:
    desk.engine.pieces = [b"one\n"]
    url = f"{desk.url}{ROOT}{PATH}?follow=true"
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        desk.session.get(url, headers={"Authorization": "token bea-token"}) as response,
    ):
        assert await response.content.readany() == b"one\n"
        if how == "revoked":
            del desk.identity.tokens["bea-token"]
        else:
            desk.identity.tokens["bea-token"] = person("bea", "speech")
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()
    await desk.until(lambda: desk.engine.closed_logs == 1)


async def test_a_listener_that_does_not_read_slows_the_source_down(desk: Desk) -> None:
    desk.engine.endless = True
    headers = {"Authorization": "token ada-token"}
    async with desk.session.get(desk.url + ROOT + PATH, headers=headers) as response:
        assert response.status == 200
        made = -1
        async with asyncio.timeout(PATIENCE_SECONDS):
            while made != desk.engine.produced:
                made = desk.engine.produced
                await asyncio.sleep(0.2)
        # The buffers of both sockets are full, and nothing beyond them is made.
        assert made * 65_536 < 64 * 2**20
    await desk.until(lambda: desk.engine.closed_logs == 1)


async def test_a_log_that_breaks_does_not_look_complete(desk: Desk) -> None:
    desk.engine.broken = True
    desk.engine.pieces = [b"x" * 2**20] * 4
    with pytest.raises(aiohttp.ClientPayloadError):
        await desk.ask("GET", PATH)
