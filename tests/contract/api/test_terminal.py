"""A terminal beside the task, over a websocket."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from carrel_scheduler.ledger.audit.contract import AuditFilter
from contract.api.service import ROOT, TIMEOUT_SECONDS, ApiHarness

PATH = "/workloads/vision/train-1/exec"


@asynccontextmanager
async def terminal(harness: ApiHarness, who: str = "ada", path: str = PATH) -> Any:
    headers = {"Authorization": f"token {who}-token"}
    url = harness.url.replace("http", "ws", 1) + ROOT + path
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        harness.session.ws_connect(url, headers=headers) as socket,
    ):
        yield socket


async def test_typing_reading_resizing_and_the_end(harness: ApiHarness) -> None:
    async with terminal(harness, path=f"{PATH}?command=bash&command=-l") as socket:
        assert await socket.receive_json() == ["setup", {}]
        assert await socket.receive_json() == ["stdout", "gr"]
        assert await socket.receive_json() == ["stdout", "üß"]
        ((task, command, shell),) = harness.engine.terminals
        assert (task.workload_uid, task.index, task.attempt) == ("uid-vision-train-1", 0, 2)
        assert command == ("bash", "-l")
        await socket.send_json(["set_size", 40, 120, 0, 0])
        await socket.send_str("not json")
        await socket.send_json(["set_size", -1, 5])
        await socket.send_json(["stdin", "ls\n"])
        assert await socket.receive_json() == ["stdout", "LS\n"]
        assert shell.sizes == [(40, 120)]
        await socket.send_json(["stdin", "exit\n"])
        assert await socket.receive_json() == ["exit", 3]
        assert await socket.receive_json() == ["disconnect", 3]
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_the_audit_log_tells_of_it_before_it_opens(harness: ApiHarness) -> None:
    async with terminal(harness, path=f"{PATH}?command=id"):
        (told,) = await harness.ledger.audit.read(AuditFilter(verb="open_terminal"))
        assert (told.user, told.scope, told.name) == ("ada", "project/vision", "train-1")
        assert told.after == {"command": ["id"]}


async def test_closing_the_window_hangs_up(harness: ApiHarness) -> None:
    async with terminal(harness) as socket:
        await socket.receive_json()
        ((_, command, shell),) = harness.engine.terminals
        assert command == ("/bin/sh",)
        assert not shell.closed
    await harness.until(lambda: shell.closed)


async def test_a_revoked_token_closes_the_window(harness: ApiHarness) -> None:
    async with terminal(harness) as socket:
        await socket.receive_json()
        del harness.identity.tokens["ada-token"]
        harness.clock.now += 1
        async for _ in socket:
            pass
        assert socket.close_code == 4403


@pytest.mark.parametrize(
    ("who", "path", "status"),
    [
        ("bea", PATH, 403),
        ("carl", PATH, 404),
        ("stranger", PATH, 401),
        ("ada", f"{PATH}?index=5", 409),
        ("ada", f"{PATH}?shell=sh", 422),
    ],
)
async def test_others_are_refused_before_the_socket_opens(
    harness: ApiHarness, who: str, path: str, status: int
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with terminal(harness, who, path):
            pass
    assert refused.value.status == status
    assert harness.engine.terminals == []


async def test_a_plain_request_is_told_what_is_expected(harness: ApiHarness) -> None:
    reply = await harness.ask("GET", PATH)
    assert (reply.status, reply.code) == (400, "websocket_expected")
    assert harness.engine.terminals == []


async def test_an_upgrade_that_is_not_whole_leaves_no_terminal_behind(harness: ApiHarness) -> None:
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
    reply = await harness.ask("GET", PATH, headers=headers)
    assert reply.status == 400 or reply.status == 426
    ((_, _, shell),) = harness.engine.terminals
    await harness.until(lambda: shell.closed)


async def test_a_command_with_pipes_keeps_output_errors_and_exit_code_apart(
    harness: ApiHarness,
) -> None:
    words = ("sh", "-c", "cat; echo wrong >&2; exit 4")
    path = "/workloads/vision/train-1/run?" + "&".join(f"command={quote(word)}" for word in words)
    sent = bytes(range(256)) * 1024
    async with terminal(harness, path=path) as socket:
        await socket.send_bytes(sent)
        await socket.send_str("")
        found = {1: b"", 2: b""}
        while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
            found[message.data[0]] += message.data[1:]
        assert message.json() == ["exit", 4]
        assert (found[1] == sent, found[2]) == (True, b"wrong\n")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE


@pytest.mark.parametrize(
    ("who", "query", "status"), [("bea", "?command=id", 403), ("ada", "", 422)]
)
async def test_a_command_is_for_its_owner_and_has_to_be_named(
    harness: ApiHarness, who: str, query: str, status: int
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with terminal(harness, who, f"/workloads/vision/train-1/run{query}"):
            pass
    assert refused.value.status == status
