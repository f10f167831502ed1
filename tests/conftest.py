"""Shared by all tests: unit tests have no network, the other folders have loopback."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WITH_LOOPBACK = tuple(HERE / part for part in ("contract", "e2e"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Open loopback for the folders that talk to real servers; everything else stays closed."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in WITH_LOOPBACK):
            item.add_marker(pytest.mark.enable_socket)


@pytest.fixture(scope="session", autouse=True)
def _known_event_loop() -> Iterator[None]:
    """The main thread's loop before any test makes its own.

    The asyncio plugin asks for the present loop in order to put it back; where there is none, the
    standard library makes one that nobody closes.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
