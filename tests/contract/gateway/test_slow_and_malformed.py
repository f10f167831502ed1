"""Callers of the gateway who do not finish their requests, or send none that can be read."""

import asyncio
import logging

import pytest

from carrel_hub.gateway.app import server_log
from contract.gateway.test_forwarding import (
    PATH,
    TIMEOUT_SECONDS,
    ForwardingGateway,
    Heard,
    forwarding_gateway,
    gateway,
)

__all__ = ["gateway"]
SHORT_SECONDS = 0.3


async def test_a_head_that_does_not_end_is_hung_up_on_and_an_answer_may_last() -> None:
    go_on = asyncio.Event()

    async def slowly(_: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await go_on.wait()
        writer.write(b"2\r\nde\r\n0\r\n\r\n")

    async with forwarding_gateway(SHORT_SECONDS) as gateway:
        gateway.target.answer = slowly
        lasting = await gateway.caller()
        lasting.ask()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await lasting.reader.readuntil(b"abc\r\n")
        partial = await gateway.caller()
        partial.writer.write(f"GET {PATH}/ HTTP/1.1\r\nHost: x\r\nX-Mo".encode())
        assert await partial.rest() == b""
        go_on.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await lasting.reader.readuntil(b"0\r\n\r\n") == b"2\r\nde\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (("GET", "X-Name : a"), b""),
        (("GET", "X-Zero: \x00"), b""),
        (("POST", "Content-Length: +5"), b"12345"),
        (("POST", "Transfer-Encoding: chunked"), b"zz\r\nabc\r\n"),
    ],
)
async def test_requests_that_cannot_be_read_write_no_errors(
    gateway: ForwardingGateway,
    lines: tuple[str, ...],
    body: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        caller = await gateway.caller()
        caller.ask(*lines, body=body)
        assert b" 400 " in (await caller.rest()).split(b"\r\n")[0]
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


def test_what_a_handler_raises_is_written_down(caplog: pytest.LogCaptureFixture) -> None:
    server_log().error("Error handling request", exc_info=ValueError("ours"))
    assert "ours" in caplog.text
