"""Fixtures: one stack and one browser for each module, as starting them takes a while."""

from collections.abc import Iterator

import pytest

from e2e.stack import People, Stack, people


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """``carrel up --demo``, ended with everything that it started."""
    stack = Stack(tmp_path_factory.mktemp("up") / "state")
    try:
        stack.start()
        yield stack
    finally:
        stack.stop(jobs=True)


@pytest.fixture(scope="module")
def team(stack: Stack) -> Iterator[People]:
    """The browsers of all people."""
    with people(stack) as everybody:
        yield everybody
