"""What a failure of the database means: its storage is full, or it does not answer.

A full storage is an outcome of its own because nothing was written then and the same call succeeds
once there is room. On SQLite that holds for errors while pages are written, not for those of a
flush to disk, of which a restart may find more than was reported.
"""

import errno
from typing import Final

from sqlalchemy.exc import DBAPIError

from carrel_scheduler.ledger.errors import LedgerUnavailable

_SQLITE: Final = {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"}
_POSTGRESQL: Final = {"53100"}
_SYSTEM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class StorageFull(LedgerUnavailable):
    """There is no room to write; nothing was written.

    Attributes:
        code: ``storage_full``.
    """

    code = "storage_full"


def is_full(error: BaseException) -> bool:
    """Whether an error of a database or of the system says that there is no room."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return (
        getattr(cause, "sqlite_errorname", "") in _SQLITE
        or getattr(cause, "sqlstate", "") in _POSTGRESQL
        or (isinstance(cause, OSError) and cause.errno in _SYSTEM)
    )


def failed(doing: str, error: BaseException) -> LedgerUnavailable:
    """The error for callers; ``doing``: what the database failed at."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    failure = (
        StorageFull(f"the storage of the ledger is full, nothing can be written: {cause}")
        if is_full(error)
        else LedgerUnavailable(f"the database failed while {doing}: {cause!r}")
    )
    failure.__cause__ = error
    return failure
