"""Clients that know nothing of Carrel talk to an endpoint: curl, requests, openai; and our own."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
import requests
from openai.types.chat import ChatCompletionMessageParam

from carrel.client import AsyncClient, Client
from carrel.errors import ApiError
from contract.gateway.running import TIMEOUT_SECONDS, GatewaySite, gateway_site, until


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[GatewaySite]:
    async with gateway_site(tmp_path) as made:
        await made.submit("llm", routes=[{"access": "project"}])
        await made.until_ready("llm")
        await until(
            lambda: made.ask("GET", "vision/llm/healthz", "bea"),
            lambda answer: answer[0] == 200,
            "bea is let in",
        )
        yield made


async def test_clients_of_others(served: GatewaySite) -> None:
    url = served.address("vision/llm")
    await _curl(url)
    await asyncio.to_thread(_requests, url)
    await asyncio.to_thread(_openai, url)


async def _curl(url: str) -> None:
    command = ["curl", "-sS", "-N", "-H", "Authorization: Bearer bea", "-d", "a=1", f"{url}/form"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    told = json.loads(output)
    assert (process.returncode, told["method"], told["size"]) == (0, "POST", 3)
    assert told["headers"]["X-Forwarded-User"] == "bea"


def _requests(url: str) -> None:
    answer = requests.post(
        f"{url}/predict",
        json={"x": [1, 2]},
        headers={"Authorization": "token bea"},
        timeout=TIMEOUT_SECONDS,
    )
    assert (answer.status_code, answer.json()["size"]) == (200, 13)
    refused = requests.get(
        f"{url}/", headers={"Authorization": "token carl"}, timeout=TIMEOUT_SECONDS
    )
    assert (refused.status_code, refused.json()["code"]) == (403, "not_shared")


def _openai(url: str) -> None:
    with openai.OpenAI(
        base_url=f"{url}/v1", api_key="bea", max_retries=0, timeout=TIMEOUT_SECONDS
    ) as client:
        asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello?"}]
        whole = client.chat.completions.create(model="m", messages=asked)
        assert whole.choices[0].message.content == "Hello from Carrel"
        stream = client.chat.completions.create(model="m", messages=asked, stream=True)
        assert [chunk.choices[0].delta.content for chunk in stream] == ["Hello", " from", " Carrel"]


async def test_our_own_client_and_commands(tmp_path: Path) -> None:
    async with gateway_site(tmp_path) as served:
        await served.submit("add", command=["python", "add.py"], files={"add.py": ADD})
        await served.until_ready("add")
        environment = {
            "CARREL_URL": served.scheduler.url,
            "CARREL_GATEWAY_URL": f"{served.gateway}/services/gateway",
            "CARREL_TOKEN": "ada",
            "CARREL_PROJECT": "vision",
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            await _async_client()
            await asyncio.to_thread(_plain_client)
        for arguments, code, words in (
            (["call", "add", "--data", '{"a": 1, "b": 2}'], 0, "3\n"),
            (["call", "add", "--data", "5", "--stream"], 0, "0\n1\n2\n3\n4\n"),
            (["call", "add", "--data", "{"], 2, "has to be JSON"),
            (["call", "nothing", "--data", "1"], 1, "can be reached here"),
            (["endpoints", "--no-headers"], 0, "1/1"),
        ):
            command = [sys.executable, "-m", "carrel.cli", *arguments]
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **environment},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await process.communicate()
            assert (process.returncode, words in output.decode()) == (code, True), output
        await _a_training_asks(served)


async def _a_training_asks(served: GatewaySite) -> None:
    """With nothing but what every task is told, which is good for its user's work alone."""
    body = {"name": "batch", "project": "vision", "command": ["python", "batch.py"]}
    once = {"files": {"batch.py": BATCH}, "backoff_limit": 0}
    await served.api("POST", "/workloads", body=body | once)
    ended = await served.until("batch", lambda one: one["phase"] in ("succeeded", "failed"))
    assert ended["phase"] == "succeeded"


async def _async_client() -> None:
    async with AsyncClient() as client:
        endpoint = client.endpoint("vision", "add")
        assert await endpoint.post({"a": 1, "b": 2}) == 3
        assert [piece async for piece in endpoint.stream(3)] == [0, 1, 2]
        with pytest.raises(ApiError, match="b must be") as refused:
            await endpoint.post({"a": 1, "b": "x"})
        assert (refused.value.status, refused.value.code) == (422, "bad_input")
        changes = {"inference": {"max_replicas": 2}}
        changed = await client.update("vision", "add", changes)
        assert changed.spec.inference is not None
        assert (changed.spec.inference.max_replicas, changed.spec.inference.revision) == (2, 1)


def _plain_client() -> None:
    with Client() as client:
        assert client.endpoint("vision", "add").get("healthz") == {"ok": True}
        assert list(client.endpoint("vision", "add").stream(2)) == [0, 1]


ADD = """
import carrel

def add(a, b=None):
    if b is None:
        return (number for number in range(a))
    if not isinstance(b, int):
        raise carrel.BadInput("b must be a number")
    return a + b

carrel.serve(add)
"""

BATCH = """
import carrel
import carrel.errors

with carrel.Client() as client:
    assert client.endpoint("vision", "add").post({"a": 1, "b": 2}) == 3
    try:
        client.nodes()
    except carrel.errors.ApiError as error:
        assert error.code == "not_for_jobs"
    else:
        raise SystemExit("a task token reads more than its user's work")
"""
