"""A server that takes connections and says nothing, as a stopped process does."""

import socket
from collections.abc import Iterator

import pytest

from carrel.client import AsyncClient
from carrel.client.transport import JitteredBackoff
from carrel.errors import Unreachable


@pytest.fixture
def url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as hung:
        yield f"http://127.0.0.1:{hung.getsockname()[1]}/services/carrel"


async def _must_not_sleep(_: float) -> None:
    raise AssertionError("asked again")


PAUSES = JitteredBackoff(_must_not_sleep)


@pytest.fixture(params=[False, True], ids=["aiohttp", "few-requests"])
def few(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_reads_are_given_up_after_one_short_wait(url: str, few: bool) -> None:
    async with AsyncClient(
        url, "token", read_timeout=0.05, pauses=PAUSES, few_requests=few
    ) as client:
        with pytest.raises(Unreachable, match="it took too long"):
            await client.list_workloads()


async def test_changes_are_given_up_after_their_own_wait(url: str, few: bool) -> None:
    async with AsyncClient(url, "token", timeout=0.05, pauses=PAUSES, few_requests=few) as client:
        with pytest.raises(Unreachable, match="it took too long"):
            await client.delete_workload("vision", "x")
