"""One ledger per test on each database, and the server for PostgreSQL."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Ledger
from contract.postgresql import PostgreSQL, postgresql

__all__ = ["postgresql"]


class Ledgers:
    """Openings of one database; clock and ids are counters."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[Ledger] = []

    async def open(self, *, keep_changes: int = 50_000) -> Ledger:
        """Another opening."""
        number = len(self._opened)
        ids, ticks = itertools.count(), itertools.count(1)
        ledger = await open_ledger(
            self.url,
            clock=lambda: 1_790_000_000.0 + next(ticks),
            ids=lambda: f"uid-{number}-{next(ids)}",
            keep_changes=keep_changes,
        )
        self._opened.append(ledger)
        return ledger

    async def close(self) -> None:
        """Close whatever is open."""
        for ledger in self._opened:
            await ledger.close()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)], scope="module"
)
def database(request: pytest.FixtureRequest) -> str:
    """Which database the tests of a module run on."""
    return str(request.param)


@pytest.fixture
def database_url(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database."""
    if database == "sqlite":
        return f"sqlite:///{tmp_path / 'carrel.sqlite'}"
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return server.new_database()


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[Ledgers]:
    """Opens the database of this test, as often as asked."""
    ledgers = Ledgers(database_url)
    yield ledgers
    await ledgers.close()


@pytest.fixture
async def store(stores: Ledgers) -> Ledger:
    """One opening."""
    return await stores.open()


