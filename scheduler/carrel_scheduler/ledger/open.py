"""Opens a ledger by URL: ``sqlite:////path/carrel.sqlite`` or ``postgresql+psycopg://...``."""

import asyncio
from collections.abc import Callable
from typing import Final

from carrel_scheduler.ledger.database import Database, database_of
from carrel_scheduler.ledger.errors import InvalidArgument, LedgerNotUsable
from carrel_scheduler.ledger.secret_keys import KEYS_FILE, SecretKeys
from carrel_scheduler.ledger.sql_ledger import SqlLedger
from carrel_scheduler.quarantine import Quarantine

KEEP_CHANGES: Final = 50_000


async def open_ledger(
    url: str,
    *,
    clock: Callable[[], float],
    ids: Callable[[], str],
    keep_changes: int = KEEP_CHANGES,
    quarantine: Quarantine | None = None,
    keys: SecretKeys | None = None,
) -> SqlLedger:
    """Open, migrating to the present schema if needed; close it with ``close``.

    The ledger belongs to the running event loop.

    Args:
        url: the database. A SQLite file is made when missing, its folder is not.
        clock: epoch seconds.
        ids: new unique ids.
        keep_changes: how many changes watches can go back.
        quarantine: where objects go that cannot be read.
        keys: for secrets; those of the file beside a SQLite database by default.

    Raises:
        LedgerNotUsable: the URL, folder, file, server or schema does not serve; says why.
    """
    if keep_changes < 1:
        raise InvalidArgument("keep_changes", keep_changes, "at least 1")
    database = await asyncio.to_thread(migrated, url)
    return SqlLedger(
        database,
        keys=keys or keys_beside(database),
        clock=clock,
        ids=ids,
        keep_changes=keep_changes,
        quarantine=quarantine,
    )


def keys_beside(database: Database) -> SecretKeys:
    """Keys in the folder of a SQLite database; raises ``LedgerNotUsable``."""
    if database.file is None:
        lacks = "needs keys for the secrets of work, which a server's database cannot keep"
        raise LedgerNotUsable("keys_not_usable", database.label, lacks)
    return SecretKeys.load_or_create(database.file.with_name(KEYS_FILE))


def migrated(url: str) -> Database:
    """The database at the present schema; raises ``LedgerNotUsable``. Blocks."""
    # Imported here because it takes a while, and only where a ledger is opened.
    from carrel_scheduler.ledger.migrations.migrate import upgrade

    database = database_of(url)
    upgrade(database)
    return database
