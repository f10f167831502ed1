"""Fixtures: one stack and one browser for each module, as starting them takes a while."""

from collections.abc import Iterator

import pytest

from e2e.stack import People, Stack, people, running_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("up") / "state") as stack:
        yield stack


@pytest.fixture(scope="module")
def team(stack: Stack) -> Iterator[People]:
    """The browsers of all people."""
    with people(stack) as everybody:
        yield everybody
