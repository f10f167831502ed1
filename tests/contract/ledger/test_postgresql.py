"""What is special about PostgreSQL: a server that goes away, other openings being told."""

import asyncio

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from carrel_scheduler.ledger.errors import InvalidArgument, LedgerNotUsable
from carrel_scheduler.ledger.open import open_ledger
from carrel_schema.objects import Workload
from contract.ledger.ledger_tools import submit
from contract.ledger.ledgers import Ledgers
from contract.ledger.store_tools import take, workload
from contract.postgresql import PostgreSQL

pytestmark = pytest.mark.postgresql


@pytest.fixture
def database() -> str:
    return "postgresql"


async def test_an_unreachable_server_is_named_without_the_password() -> None:
    url = "postgresql://carrel:pw-1@/carrel?host=/no/such/folder"
    with pytest.raises(LedgerNotUsable) as caught:
        await open_ledger(url, clock=lambda: 0.0, ids=lambda: "uid")
    assert caught.value.code == "server_not_reachable"
    assert "/no/such/folder" in str(caught.value)
    assert "pw-1" not in str(caught.value)


async def test_text_that_it_cannot_hold_is_refused_alone(stores: Ledgers) -> None:
    ledger = await stores.open()
    results = await asyncio.gather(
        ledger.create(workload("a")),
        ledger.create(workload("b\0")),
        ledger.create(workload("c")),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [Workload, InvalidArgument, Workload]


async def test_lost_connections_are_made_again(stores: Ledgers, database_url: str) -> None:
    mine, other = await stores.open(), await stores.open()
    await submit(mine, "before")
    watch = mine.watch(Workload, 0)
    await take(watch, 1)
    following = asyncio.ensure_future(take(watch, 1))
    assert disconnect_everybody(database_url) > 0
    made = await submit(other, "after")
    (change,) = await following
    assert change.object == made
    assert await mine.get(Workload, "after", "vision") == made


def disconnect_everybody(url: str) -> int:
    """How many connections to this database were cut."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        cut = connection.exec_driver_sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE usename = current_user AND pid <> pg_backend_pid()"
        )
        return int(cut.scalar_one())


async def test_others_are_told_at_once(stores: Ledgers, postgresql: PostgreSQL) -> None:
    """Sooner than a sleeping watch looks by itself."""
    mine, other = await stores.open(), await stores.open()
    watch = mine.watch(Workload, 0)
    for name in ("one", "two", "three"):
        following = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.05)
        await submit(other, name)
        async with asyncio.timeout(5.0):
            assert (await following).object.meta.name == name
