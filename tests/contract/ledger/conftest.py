"""Fixtures: one ledger per test on each database, and the server for PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.secret_keys import KEYS_FILE
from contract.ledger.ledgers import Ledgers
from contract.postgresql import PostgreSQL, postgresql

__all__ = ["postgresql"]


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)], scope="module"
)
def database(request: pytest.FixtureRequest) -> str:
    """The database of the tests of a module."""
    return str(request.param)


@pytest.fixture
def database_url(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database."""
    if database == "sqlite":
        return f"sqlite:///{tmp_path / 'carrel.sqlite'}"
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return server.new_database()


@pytest.fixture
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the keys for secrets of this test's ledger."""
    return tmp_path_factory.mktemp("keys") / KEYS_FILE


@pytest.fixture
async def stores(database_url: str, keys_file: Path) -> AsyncIterator[Ledgers]:
    """Opens the database of this test, as often as asked."""
    ledgers = Ledgers(database_url, keys_file)
    yield ledgers
    await ledgers.close()


@pytest.fixture
async def store(stores: Ledgers) -> Ledger:
    """An opened ledger."""
    return await stores.open()


@pytest.fixture
def beginning() -> int:
    """The version of an empty database."""
    return 0
