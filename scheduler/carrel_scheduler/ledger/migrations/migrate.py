"""Brings a database to the present schema when it is opened, one process at a time.

All steps of one opening are a single transaction: a machine that stops halfway leaves the old
schema. Others who open the same database meanwhile wait for the lock.
"""

from contextlib import nullcontext
from importlib.resources import files
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from carrel_scheduler.ledger.database import Database, prepared
from carrel_scheduler.ledger.errors import LedgerNotUsable

# Any number that nobody else locks in this database.
ADVISORY_LOCK: Final = 0x0CA55E11


def upgrade(database: Database) -> None:
    """Migrate to the newest schema, making the database if need be; raises ``LedgerNotUsable``."""
    file, label = database.file, database.label
    try:
        with (
            nullcontext() if file is None else prepared(file, label),
            database.migrator.begin() as connection,
        ):
            lock(connection)
            command.upgrade(config(connection), "head")
    except CommandError as error:
        raise LedgerNotUsable(
            "newer_schema", label, f"was written by a newer version of Carrel: {error}"
        ) from error
    except DBAPIError as error:
        code = "server_not_reachable" if file is None else "file_not_usable"
        raise LedgerNotUsable(code, label, f"cannot be opened: {error.orig}") from error


def lock(connection: Connection) -> None:
    """Keep others out until the transaction ends. On SQLite its beginning has done so."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")


def config(connection: Connection) -> Config:
    """Alembic's configuration for the migrations of this package, on an open connection."""
    settings = Config()
    folder = files("carrel_scheduler.ledger") / "migrations"
    settings.set_main_option("script_location", str(folder).replace("%", "%%"))
    settings.attributes["connection"] = connection
    return settings
