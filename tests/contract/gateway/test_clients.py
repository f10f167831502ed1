"""Clients that know nothing of Carrel talk to an endpoint: curl, requests, openai."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
import requests
from openai.types.chat import ChatCompletionMessageParam

from contract.gateway.running import House, house, until


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as made:
        await made.submit("llm", routes=[{"access": "project"}])
        await made.until_ready("llm")
        await until(
            lambda: made.ask("GET", "vision/llm/healthz", "bea"),
            lambda answer: answer[0] == 200,
            "bea is let in",
        )
        yield made


async def test_clients_of_others(served: House) -> None:
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
        f"{url}/predict", json={"x": [1, 2]}, headers={"Authorization": "token bea"}, timeout=30
    )
    assert (answer.status_code, answer.json()["size"]) == (200, 13)
    refused = requests.get(f"{url}/", headers={"Authorization": "token carl"}, timeout=30)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_shared")


def _openai(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="bea", max_retries=0, timeout=30) as client:
        asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello?"}]
        whole = client.chat.completions.create(model="m", messages=asked)
        assert whole.choices[0].message.content == "Hello from Carrel"
        stream = client.chat.completions.create(model="m", messages=asked, stream=True)
        assert [chunk.choices[0].delta.content for chunk in stream] == ["Hello", " from", " Carrel"]
