"""Requests that do not arrive in time end; answers last."""

import asyncio
from pathlib import Path

import pytest

from carrel_scheduler.service.listening import RequestLimits
from contract.api.service import ROOT, TIMEOUT_SECONDS, ApiHarness, running
from contract.api.streams import listening
from contract.api.test_events import event

SHORT_SECONDS = 0.3


async def hung_up(harness: ApiHarness, sent: str) -> bytes:
    """What comes until the server hangs up."""
    port = int(harness.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent.encode())
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await reader.read()
    finally:
        writer.close()


HEAD = f"POST {ROOT}/workloads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ada-token\r\n"
PARTIAL_HEAD = RequestLimits(head_seconds=SHORT_SECONDS)
PARTIAL_BODY = RequestLimits(body_seconds=SHORT_SECONDS)


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        (PARTIAL_HEAD, ""),
        (PARTIAL_HEAD, HEAD),
        (PARTIAL_BODY, f"{HEAD}Content-Length: 1000\r\n\r\n{{"),
        (PARTIAL_BODY, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"),
    ],
)
async def test_who_does_not_finish_a_request_is_hung_up_on(
    tmp_path: Path, limits: RequestLimits, sent: str
) -> None:
    async with running(tmp_path, limits=limits) as harness:
        assert await hung_up(harness, sent) == b""


async def test_a_head_of_too_many_bytes_is_hung_up_on(tmp_path: Path) -> None:
    async with running(tmp_path, limits=RequestLimits(head_bytes=2000)) as harness:
        assert b"200" not in await hung_up(harness, f"{HEAD}X-Long: {'x' * 2000}\r\n\r\n")


async def test_an_event_stream_outlives_both_limits(tmp_path: Path) -> None:
    limits = RequestLimits(head_seconds=SHORT_SECONDS, body_seconds=SHORT_SECONDS)
    async with (
        running(tmp_path, limits=limits) as harness,
        listening(harness, "/events", "ada") as heard,
    ):
        assert await heard.names(2) == ["vision/train-1", "vision/desk"]
        assert await hung_up(harness, HEAD) == b""
        assert await hung_up(harness, f"{HEAD}Content-Length: 9\r\n\r\n") == b""
        changed = await harness.set_status("vision", "train-1", phase="preempting")
        harness.live.publish(event(changed))
        assert await heard.names(1) == ["vision/train-1"]
