"""The file of a SQLite database: its folder, its mode, and one process at a time while opening.

The lock is a file of its own. The database file must not be opened here once it is in use: closing
it would drop the locks that SQLite holds on it in this process.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from carrel_scheduler.ledger.errors import LedgerNotUsable

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
