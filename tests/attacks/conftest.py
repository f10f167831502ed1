"""The product under attack: one ``carrel up --demo`` as root, with its three accounts.

Ada belongs to project ``vision``, Grace to ``speech``, and the administrator to neither. An attack
that restarts parts, fills disks or removes people starts a product of its own: ``own_product``.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attacks.person import Person
from e2e.stack import People, Stack, people


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starting a product takes a while."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(900))


def _started(folder: Path, *arguments: str) -> Stack:
    shots = Path(os.environ.get("CARREL_SHOTS", folder / "shots"))
    shots.mkdir(parents=True, exist_ok=True)
    stack = Stack(folder / "state", shots, ("--demo", *arguments))
    stack.start()
    return stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product that most attacks share; ended with everything that it started."""
    if os.geteuid() != 0:
        raise AssertionError("users are kept apart only by root: run these tests as root")
    stack = _started(tmp_path_factory.mktemp("attacked"))
    yield stack
    stack.stop(jobs=True)


@pytest.fixture
def own_product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stack]]:
    """Start a product for one test alone, with further arguments of ``carrel up``."""
    begun: list[Stack] = []

    def start(*arguments: str) -> Stack:
        begun.append(_started(tmp_path_factory.mktemp("own"), *arguments))
        return begun[-1]

    yield start
    for one in begun:
        one.stop(jobs=True)


@pytest.fixture(scope="package")
def ada(stack: Stack) -> Iterator[Person]:
    """The attacker of most stories: an ordinary member of ``vision``."""
    with Person.of(stack, "ada", "vision") as person:
        yield person


@pytest.fixture(scope="package")
def grace(stack: Stack) -> Iterator[Person]:
    """The victim of most stories: an ordinary member of ``speech``."""
    with Person.of(stack, "grace", "speech") as person:
        yield person


@pytest.fixture(scope="package")
def admin(stack: Stack) -> Iterator[Person]:
    """The administrator."""
    with Person.of(stack, "admin", "vision") as person:
        yield person


@pytest.fixture(scope="package")
def browsers(stack: Stack) -> Iterator[People]:
    """A real browser for each person."""
    with people(stack) as everybody:
        yield everybody
