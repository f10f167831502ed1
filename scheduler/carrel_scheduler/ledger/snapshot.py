"""A copy of a SQLite ledger in one consistent state, made while the ledger is in use.

The copy is a database by itself, without a log beside it, and holds secrets as the ledger does:
only its owner can read it. It appears under its name once it is complete and on the disk.

``python -m carrel_scheduler.ledger.snapshot SOURCE TARGET`` does the same for other programs.
"""

import argparse
import os
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from carrel_scheduler.ledger.database import OWNER_ONLY
from carrel_scheduler.ledger.errors import LedgerNotUsable

BUSY_SECONDS: Final = 60.0


def write_snapshot(source: Path, target: Path) -> None:
    """Copy the database at ``source`` to ``target``, which must not exist. Blocks.

    Raises ``LedgerNotUsable`` if either cannot be used; nothing is at ``target`` then.
    """
    if not source.is_file():
        raise LedgerNotUsable("file_not_usable", str(source), "there is no database file")
    part = target.with_name(target.name + ".part")
    try:
        if os.path.lexists(target):
            raise FileExistsError(f"{target} exists already")
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    except OSError as error:
        raise LedgerNotUsable("file_not_usable", str(target), str(error)) from error
    try:
        _copy(source, part)
        os.link(part, target)  # unlike a rename it replaces nothing
    except (sqlite3.Error, OSError) as error:
        raise LedgerNotUsable("file_not_usable", str(source), f"not copied: {error}") from error
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def _copy(source: Path, part: Path) -> None:
    with closing(sqlite3.connect(source, timeout=BUSY_SECONDS)) as there:
        # One transaction: else pages that change meanwhile make the copy begin anew, again and
        # again while the ledger is busy.
        there.execute("BEGIN")
        there.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        with closing(sqlite3.connect(part)) as here:
            there.backup(here)
            here.execute("PRAGMA journal_mode=DELETE")
            (state,) = here.execute("PRAGMA integrity_check").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(f"the copy is damaged: {state}")
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main() -> None:
    """Entry point, see the module."""
    parser = argparse.ArgumentParser(description="Copy a SQLite ledger while it is in use.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    try:
        write_snapshot(arguments.source, arguments.target)
    except LedgerNotUsable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
