"""An entry of the catalogue, served and asked as a language model is."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from carrel import AsyncClient
from contract.service.site import TIMEOUT_SECONDS, Site, site

ASKED = [{"role": "user", "content": "Are you there?"}]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path, 0) as made:
        yield made


async def test_the_endpoint_of_an_entry_completes_a_chat(service: Site) -> None:
    async with AsyncClient(service.scheduler.url, "ada") as client:
        entries = {one.name: one for one in await client.catalogue()}
        assert entries["chat-example"].runs_here
        assert entries["llama-2-7b-chat"].why_not.endswith("here are none.")
        body = {"project": "vision", "name": "chat", "kind": "inference"}
        await client.create_workload({**body, "template": "chat-example"})
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for event in client.events("vision", "chat"):
                endpoint = event.workload.status.endpoint
                if endpoint is not None and endpoint.targets:
                    break
    assert endpoint is not None
    [target] = endpoint.targets
    address = f"http://{target.host}:{next(iter(target.ports.values()))}/v1"
    async with openai.AsyncOpenAI(base_url=address, api_key="none") as server:
        model: Any = server.chat.completions
        whole = await model.create(model="chat-example", messages=ASKED)
        assert whole.choices[0].message.content == "You said: Are you there?"
        pieces = await model.create(model="chat-example", messages=ASKED, stream=True)
        said = [piece.choices[0].delta.content or "" async for piece in pieces]
        assert "".join(said) == "You said: Are you there?"
        with pytest.raises(openai.BadRequestError, match="at least one object"):
            await model.create(model="chat-example", messages=[])
