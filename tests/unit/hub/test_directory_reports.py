"""What the scheduler is told of comparing rights with the directory."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from carrel.errors import Unreachable
from carrel_hub.directory.controller import (
    DirectoryController,
    DirectoryState,
    DirectoryUnreachableError,
    UserSource,
)

LOG = logging.getLogger("test")


class Table:
    async def refresh(self) -> None:
        """Nothing new."""


class Source:
    """A directory that answers, or not, about the one user."""

    def __init__(self) -> None:
        row = SimpleNamespace(name="ada")
        query = SimpleNamespace(all=lambda: [row])
        self.app: Any = SimpleNamespace(
            db=SimpleNamespace(query=lambda _: query), users={"ada": SimpleNamespace(name="ada")}
        )
        self.table: Any = Table()
        self.error: Exception | None = None

    async def ask(self, _user: Any) -> DirectoryState:
        if self.error is not None:
            raise self.error
        return DirectoryState.KNOWN


def controller(source: UserSource, told: list[tuple[float, str]]) -> DirectoryController:
    moments = iter(range(100, 200, 10))

    async def report(succeeded_at: float, error: str) -> None:
        told.append((succeeded_at, error))

    return DirectoryController(source, 60.0, LOG, report, lambda: float(next(moments)))


async def test_each_round_is_reported_with_the_last_success() -> None:
    source, told = Source(), list[tuple[float, str]]()
    rounds = controller(source, told)
    source.error = DirectoryUnreachableError("ldap: refused")
    await rounds.one_round()
    source.error = None
    await rounds.one_round()
    source.error = DirectoryUnreachableError("ldap: refused")
    await rounds.one_round()
    assert told == [(0.0, "ldap: refused"), (100.0, ""), (100.0, "ldap: refused")]


async def test_a_round_that_breaks_is_reported_by_its_kind_alone() -> None:
    source, told = Source(), list[tuple[float, str]]()

    async def refresh() -> None:
        raise RuntimeError("with a password")

    source.table.refresh = refresh
    await controller(source, told).one_round()
    assert told == [(0.0, "RuntimeError")]


async def test_a_scheduler_that_does_not_answer_ends_no_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def report(_at: float, _error: str) -> None:
        raise Unreachable("http://127.0.0.1:1 does not answer")

    with caplog.at_level(logging.DEBUG):
        await DirectoryController(Source(), 60.0, LOG, report).one_round()
    assert "the state of the directory could not be sent" in caplog.text
