"""What answers that are no success mean to a client."""

import json
from typing import Any

import pytest

from carrel.client.config import ClientSettings
from carrel.client.transport import Transport
from carrel.errors import ApiError, Unreachable


class Answer:
    """As much of a response as is looked at."""

    content_type = "application/problem+json"

    def __init__(self, status: int, **problem: str) -> None:
        self.status, self._problem = status, problem

    async def read(self) -> bytes:
        return json.dumps(self._problem).encode()


async def check(answer: Any) -> None:
    await Transport(ClientSettings(url="http://127.0.0.1:1", token="t")).check(answer)


async def test_a_part_behind_the_proxy_that_does_not_answer_is_unreachable() -> None:
    """Whoever follows a stream asks again then, as when nobody listens."""
    with pytest.raises(Unreachable, match="it is not there now"):
        await check(Answer(503, code="away", title="Not there"))


async def test_another_refusal_tells_its_code() -> None:
    with pytest.raises(ApiError) as refused:
        await check(Answer(503, code="hub_unavailable", title="Ask later"))
    assert refused.value.code == "hub_unavailable"
