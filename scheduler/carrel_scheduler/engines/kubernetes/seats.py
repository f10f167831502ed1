"""A seat: what a scheduler that is started again has in common with the one that was killed.

It is a name in a file of the state folder. Whoever holds the lock of that file is the only living
process of that seat, so it knows that any other holder of its seat is dead, and need not wait until
a lease lapses that nobody will renew. Where the file can not be locked (another process of this
folder runs, or the file system has no locks) there is no seat, and every lease is waited for.
"""

import fcntl
import logging
import os
import secrets
from pathlib import Path
from typing import Final, Self

log = logging.getLogger(__name__)

FILE: Final = "scheduler-seat"
_BYTES: Final = 6


class Seat:
    """The seat of a folder, held until ``close``, or until the process ends, however it does.

    Attributes:
        name: never another folder's; empty where there is no seat.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            log.warning("the seat of %s is not ours: %s", folder, error)
            self.name = ""
        else:
            self.name = self._read() or self._write()

    def _read(self) -> str:
        return os.read(self._file, 64).decode("ascii", "replace").strip()

    def _write(self) -> str:
        name = secrets.token_hex(_BYTES)
        os.pwrite(self._file, f"{name}\n".encode("ascii"), 0)
        os.fsync(self._file)
        return name

    def close(self) -> None:
        """Leave it to the next process."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
