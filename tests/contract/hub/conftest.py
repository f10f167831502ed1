"""Fixtures: one Hub for the tests of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.hub.stack import Stack

PEOPLE = {
    "ada": ["vision"],
    "grace": ["speech"],
    "linus": ["vision", "speech"],
    "outsider": [],
    "admin": [],
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("hub")
    with Stack(folder, PEOPLE) as running:
        yield running


@pytest.fixture(autouse=True)
def _calm(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reset what a test asked of the stack."""
    yield
    if "stack" in request.fixturenames:
        stack: Stack = request.getfixturevalue("stack")
        runner = stack.runner
        runner.hold, runner.real, runner.command = False, False, None
        stack.fake._do(stack.fake._server.failures.clear)
