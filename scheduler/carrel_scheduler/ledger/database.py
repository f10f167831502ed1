"""Engines for the two databases: one connection that writes, a few that read, one for migrations.

SQLite: write-ahead log, full sync on every commit; transactions begin by our own statements because
the driver's would begin too late for savepoints. One process at a time opens the file, which nobody
else may read. The lock is a file of its own: the database file must not be opened here once it is
in use, since closing it would drop the locks that SQLite holds on it in this process.

PostgreSQL: commits wait for the disk whatever the server's default, reads see one snapshot.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from carrel_scheduler.ledger.errors import LedgerNotUsable

READERS: Final = 4
BUSY_TIMEOUT_MS: Final = 30_000
# Of SQLite: pages kept by each connection, and how long the log grows (32 MiB) before its pages are
# written to their places, which takes a while.
CACHE_KIB: Final = 32 * 1024
CHECKPOINT_PAGES: Final = 8192


class Database(NamedTuple):
    """The connection of one database.

    Attributes:
        label: its URL without the password, for messages.
        file: of SQLite.
        listens: commits of other processes are announced (else they are polled for).
    """

    label: str
    file: Path | None
    listens: bool
    writer: Engine
    reader: Engine
    migrator: Engine

    def dispose(self) -> None:
        """Close every connection."""
        for engine in (self.writer, self.reader, self.migrator):
            engine.dispose()


def database_of(url: str) -> Database:
    """Engines for a URL; raises ``LedgerNotUsable``. Connects to nothing yet."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise LedgerNotUsable(
            "unknown_database",
            "database URL",
            "is not of the form sqlite:////path or postgresql://",
        ) from error
    if parsed.drivername in {"sqlite", "sqlite+pysqlite"}:
        return _sqlite(parsed)
    if parsed.drivername in {"postgresql", "postgresql+psycopg"}:
        if find_spec("psycopg") is None:
            raise LedgerNotUsable(
                "driver_missing",
                parsed.render_as_string(hide_password=True),
                "needs psycopg: pip install 'jupyter-carrel[postgresql]'",
            )
        return _postgresql(parsed.set(drivername="postgresql+psycopg"))
    raise LedgerNotUsable(
        "unknown_database",
        parsed.render_as_string(hide_password=True),
        "use sqlite:////path/carrel.sqlite or postgresql+psycopg://user@host/name",
    )


def _sqlite(url: URL) -> Database:
    label = url.render_as_string()
    if not url.database or url.database == ":memory:":
        raise LedgerNotUsable("unknown_database", label, "SQLite needs the path of a file")
    return Database(
        label=label,
        file=Path(url.database),
        listens=False,
        writer=_sqlite_engine(url, "BEGIN IMMEDIATE", pool_size=1, max_overflow=0),
        reader=_sqlite_engine(url, "BEGIN", pool_size=READERS, max_overflow=0),
        # Rebuilding a table drops the old one; with foreign keys on, that would cascade.
        migrator=_sqlite_engine(url, "BEGIN IMMEDIATE", foreign_keys=False, poolclass=NullPool),
    )


def _engine(url: URL, **options: Any) -> Engine:
    # Parameters of statements may be secrets; errors must not show them.
    return create_engine(url, hide_parameters=True, **options)


def _sqlite_engine(url: URL, begin: str, *, foreign_keys: bool = True, **pool: Any) -> Engine:
    engine = _engine(url, **pool)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "journal_mode=WAL",
            "synchronous=FULL",
            f"cache_size=-{CACHE_KIB}",
            # Pages that a savepoint restores; else they are written to files and thrown away.
            "temp_store=MEMORY",
            f"wal_autocheckpoint={CHECKPOINT_PAGES}",
            f"foreign_keys={'ON' if foreign_keys else 'OFF'}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    event.listen(engine, "begin", partial(Connection.exec_driver_sql, statement=begin))
    return engine


def _postgresql(url: URL) -> Database:
    writer = _engine(url, pool_size=1, max_overflow=0, pool_pre_ping=True)
    durable = "SET LOCAL synchronous_commit = on"
    event.listen(writer, "begin", partial(Connection.exec_driver_sql, statement=durable))
    reader = _engine(
        url,
        pool_size=READERS,
        max_overflow=0,
        pool_pre_ping=True,
        isolation_level="REPEATABLE READ",
    )
    return Database(
        label=url.render_as_string(hide_password=True),
        file=None,
        listens=True,
        writer=writer,
        reader=reader,
        migrator=_engine(url, poolclass=NullPool),
    )


OWNER_ONLY: Final = 0o600


@contextmanager
def prepared(path: Path, label: str) -> Iterator[None]:
    """Make sure of a file that only its owner can read, and keep other openings out meanwhile.

    SQLite gives its log files the mode of the database. Raises ``LedgerNotUsable``.
    """
    _check_folder(path.parent, label)
    try:
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, OWNER_ONLY)
    except OSError as error:
        raise _not_usable(label, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _check_file(path, label)
        yield
    finally:
        os.close(lock)


def _check_folder(folder: Path, label: str) -> None:
    # Not Path.is_dir, which raises where a folder above may not be entered.
    if os.access(folder.parent, os.X_OK) and not folder.is_dir():
        raise LedgerNotUsable("folder_missing", label, f"the folder {folder} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LedgerNotUsable(
            "folder_not_writable", label, f"this account may not write into {folder}"
        )


def _check_file(path: Path, label: str) -> None:
    try:
        if path.exists():
            path.chmod(OWNER_ONLY)
        else:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    except OSError as error:
        raise _not_usable(label, error) from error
    if not path.is_file():
        raise LedgerNotUsable("file_not_usable", label, f"{path} is not a file")


def _not_usable(label: str, error: OSError) -> LedgerNotUsable:
    return LedgerNotUsable(
        "file_not_usable", label, f"{error.filename} cannot be used ({error.strerror})"
    )
