"""The migrations lead to the schema, down and up again, whoever comes first."""

import asyncio
from typing import Any

import msgspec
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, select

from carrel_scheduler.ledger.columns.tables import metadata, specs
from carrel_scheduler.ledger.database import database_of
from carrel_scheduler.ledger.errors import LedgerNotUsable
from carrel_scheduler.ledger.migrations.migrate import config, upgrade
from carrel_scheduler.ledger.records import GpuUse
from carrel_schema.objects import Project
from contract.ledger.ledger_tools import Ledgers, submit
from contract.ledger.store_tools import project


def differences(url: str) -> list[Any]:
    """What alembic would change to get from the database to the schema."""
    database = database_of(url)
    with database.migrator.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    database.dispose()
    return list(found)


def migrate_down(url: str) -> set[str]:
    """Tables that are left."""
    database = database_of(url)
    with database.migrator.begin() as connection:
        command.downgrade(config(connection), "base")
    tables = set(inspect(database.migrator).get_table_names())
    database.dispose()
    return tables


async def test_head_is_the_schema(stores: Ledgers, database_url: str) -> None:
    assert differences(database_url)
    await stores.open()
    assert differences(database_url) == []


async def test_down_and_up_again(stores: Ledgers, database_url: str) -> None:
    first = await stores.open()
    await submit(first, "before")
    await first.close()
    assert migrate_down(database_url) == {"alembic_version"}
    second = await stores.open()
    assert differences(database_url) == []
    assert (await submit(second, "after")).meta.resource_version == 1


async def test_many_may_open_a_new_database_at_once(stores: Ledgers, database_url: str) -> None:
    ledgers = await asyncio.gather(*(stores.open() for _ in range(4)))
    assert differences(database_url) == []
    await asyncio.gather(*(submit(ledger, f"by-{n}") for n, ledger in enumerate(ledgers)))


async def test_opening_again_changes_nothing(stores: Ledgers) -> None:
    first = await stores.open()
    made = await submit(first)
    await first.close()
    second = await stores.open()
    assert await second.get(type(made), "train-1", "vision") == made


async def test_a_newer_schema_is_refused(stores: Ledgers, database_url: str) -> None:
    await (await stores.open()).close()
    database = database_of(database_url)
    with database.migrator.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(LedgerNotUsable, match="newer version") as caught:
        upgrade(database)
    assert caught.value.code == "newer_schema"
    database.dispose()


async def test_measured_use_of_before_gets_its_kind(stores: Ledgers, database_url: str) -> None:
    first = await stores.open()
    made = await submit(first, "old")
    piece = GpuUse(
        workload_uid=made.meta.uid,
        workload="old",
        project="vision",
        user="ada",
        since=0.0,
        until=10.0,
        used_gpu_seconds=5.0,
        idle_gpu_seconds=0.0,
    )
    await first.add_gpu_use([piece])
    await first.close()
    database = database_of(database_url)
    with database.migrator.begin() as connection:
        command.downgrade(config(connection), "0008")
    database.dispose()
    second = await stores.open()
    lines = await second.usage(by="kind", since=0.0, until=1e12)
    assert [(one.key, one.gpu_used_seconds) for one in lines] == [(made.spec.kind, 5.0)]
    lines = await second.usage(by="gpu-type", since=0.0, until=1e12)
    assert {one.key: one.gpu_used_seconds for one in lines} == {"(none)": 0.0, "(unknown)": 5.0}


async def test_a_reservation_delay_of_before_is_kept(stores: Ledgers, database_url: str) -> None:
    """Its key in the stored specification had another name."""
    first = await stores.open()
    vision = project()
    vision.spec = msgspec.structs.replace(vision.spec, reservation_delay_seconds=30.0)
    made = await first.create(vision)
    await first.close()
    database = database_of(database_url)
    with database.migrator.begin() as connection:
        command.downgrade(config(connection), "0009")
        (text,) = connection.execute(select(specs.c.spec)).scalars()
    database.dispose()
    assert msgspec.json.decode(text)["patience_seconds"] == 30.0
    second = await stores.open()
    assert (await second.get(Project, "vision")).spec == made.spec
