"""One endpoint, and everybody who comes to it through the gateway."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from carrel.web_isolation import SANDBOX
from contract.gateway.running import TIMEOUT_SECONDS, GatewaySite, gateway_site, until


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[GatewaySite]:
    async with gateway_site(tmp_path) as made:
        await made.submit("digits", routes=[{"max_request_bytes": 100_000, "timeout_seconds": 10}])
        await made.until_ready("digits")
        yield made


async def test_what_arrives_and_who_may_come(served: GatewaySite) -> None:
    await _tells_what_was_asked(served)
    await _keeps_secrets(served)
    await _lets_in_only_whom_it_is_for(served)
    await _refuses_what_is_too_large_or_too_slow(served)
    await _passes_streams_and_websockets(served)
    await _counts(served)
    await _opens_and_closes(served)


async def _tells_what_was_asked(served: GatewaySite) -> None:
    path = "vision/digits/a%2Fb/c?x=1&y=%20"
    status, body, headers = await served.ask("POST", path, data=b"12345")
    told = json.loads(body)
    assert (status, told["path"], told["size"]) == (200, "/a%2Fb/c?x=1&y=%20", 5)
    assert told["prefix"] == "/services/gateway/vision/digits"
    assert told["headers"]["X-Forwarded-User"] == "ada"
    assert headers["Content-Security-Policy"] == SANDBOX
    status, _, headers = await served.ask("GET", "vision/digits/away")
    assert (status, headers["Location"]) == (302, "/services/gateway/vision/digits/elsewhere")


async def _keeps_secrets(served: GatewaySite) -> None:
    cookies = "jupyterhub-session-id=s; carrel-gateway=t; own=1; service-x=2"
    status, body, headers = await served.ask(
        "GET", "vision/digits/", headers={"Cookie": cookies, "X-Forwarded-User": "root"}
    )
    told = json.loads(body)["headers"]
    assert status == 200
    assert "Authorization" not in told
    assert (told["Cookie"], told["X-Forwarded-User"]) == ("own=1", "ada")
    assert [value for name, value in headers.items() if name == "Set-Cookie"] == [
        "own=1; Path=/services/gateway/vision/digits/"
    ]
    assert "Clear-Site-Data" not in headers


async def _lets_in_only_whom_it_is_for(served: GatewaySite) -> None:
    for who, path, status, code in (
        (None, "vision/digits/", 401, "unauthenticated"),
        ("nobody", "vision/digits/", 401, "unauthenticated"),
        ("bea", "vision/digits/", 403, "not_shared"),
        ("carl", "vision/digits/", 403, "not_shared"),
        ("carl", "vision/nothing/", 403, "not_shared"),
        ("narrow", "vision/digits/", 403, "missing_scope"),
        ("scraper", "vision/digits/", 403, "missing_scope"),
        ("bea", "vision/nothing/", 404, "not_found"),
        ("ada", "vision/digits/~other/", 404, "not_found"),
        ("ada", "vision/digits-r1/", 404, "not_found"),
        ("ada", "nowhere", 404, "not_found"),
    ):
        answer, body, headers = await served.ask("GET", path, who)
        assert (answer, json.loads(body)["code"]) == (status, code), (who, path)
        assert headers["Cache-Control"] == "no-store"
    status_, _, headers = await served.ask(
        "GET", "vision/digits/x?y=1", None, headers={"Sec-Fetch-Mode": "navigate"}
    )
    assert status_ == 302
    assert headers["Location"].startswith("http://digits--vision.localhost:")
    assert headers["Location"].endswith("/x?y=1")


async def _refuses_what_is_too_large_or_too_slow(served: GatewaySite) -> None:
    status, body, _ = await served.ask("POST", "vision/digits/", data=b"x" * 100_001)
    assert (status, json.loads(body)["code"]) == (413, "request_too_large")

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 10_000

    status, body, _ = await served.ask("POST", "vision/digits/", data=pieces())
    assert (status, json.loads(body)["code"]) == (413, "request_too_large")
    status, body, _ = await served.ask("GET", "vision/digits/slow?seconds=60")
    assert (status, json.loads(body)["code"]) == (504, "target_timed_out")


async def _passes_streams_and_websockets(served: GatewaySite) -> None:
    headers = {"Authorization": "Bearer ada"}
    url = served.address("vision/digits/stream")
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        served.session.get(url, headers=headers) as answer,
    ):
        for number in range(3):
            piece = await answer.content.readany()
            assert piece == f"data: {number}\n\n".encode()
            await served.ask("POST", "vision/digits/go-on")
    async with served.session.ws_connect(
        served.address("vision/digits/ws"), headers=headers, protocols=["chat"]
    ) as ws:
        await ws.send_str("hello")
        assert (await ws.receive_str(timeout=TIMEOUT_SECONDS), ws.protocol) == (
            "ada: hello",
            "chat",
        )
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await served.session.ws_connect(
            served.address("vision/digits/ws"), headers={"Authorization": "Bearer carl"}
        )
    assert refused.value.status == 403


async def _counts(served: GatewaySite) -> None:
    status, body, _ = await served.ask("GET", "metrics", "scraper")
    text = body.decode()
    labels = 'endpoint="digits",project="vision"'
    assert status == 200
    assert f'carrel_endpoint_requests_total{{{labels},status="5xx"}} 1.0' in text
    assert f"carrel_endpoint_ready_targets{{{labels}}} 1.0" in text
    assert f"carrel_endpoint_latency_seconds_count{{{labels}}}" in text
    assert (await served.ask("GET", "metrics", "bea"))[0] == 403
    status_ = await served.until("digits", lambda one: one["endpoint"]["last_request_at"])
    assert status_["endpoint"]["url"] == "/services/gateway/vision/digits/"


async def _opens_and_closes(served: GatewaySite) -> None:
    async def seen_by_bea() -> int:
        return (await served.ask("GET", "vision/digits/", "bea"))[0]

    await served.api("POST", "/workloads/vision/digits/share", body={"access": "project"})
    await until(seen_by_bea, lambda status: status == 200, "an open door")
    await served.api("POST", "/workloads/vision/digits/share", body={"access": "user"})
    await until(seen_by_bea, lambda status: status == 403, "a closed door")
    assert (await served.status("digits"))["endpoint"]["revision"] == 1
