"""Refusals of the ledger beyond ``store``: bad input, an unusable database, a full storage.

A full storage is an outcome of its own because nothing was written then and the same call succeeds
once there is room. On SQLite that holds for errors while pages are written, not for those of a
flush to disk, of which a restart may find more than was reported.
"""

import errno
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

from carrel_scheduler.ledger.store import StoreError


class InvalidArgument(StoreError):  # noqa: N818 - an outcome to handle, like its siblings
    """A value that cannot be stored or queried.

    Attributes:
        code: ``invalid_argument``.
        field: the argument or attribute.
        value: what was given.
        expected: what would be right.
    """

    code = "invalid_argument"

    def __init__(self, field: str, value: Any, expected: str) -> None:
        super().__init__(f"{field}: {value!r} is not {expected}")
        self.field, self.value, self.expected = field, value, expected


class LedgerNotUsable(StoreError):  # noqa: N818 - see above
    """The database cannot be opened; the message has the cause and advice.

    Attributes:
        code: ``unknown_database``, ``driver_missing``, ``folder_missing``,
            ``folder_not_writable``, ``file_not_usable``, ``server_not_reachable``,
            ``newer_schema``, ``keys_not_usable``, ``secrets_unreadable``.
    """

    def __init__(self, code: str, database: str, detail: str) -> None:
        super().__init__(f"{database}: {detail}")
        self.code, self.database, self.detail = code, database, detail


class SecretsUnreadable(StoreError):  # noqa: N818 - see above
    """No key of the ledger fits the secrets of a workload."""

    code = "secrets_unreadable"


class LedgerUnavailable(StoreError):  # noqa: N818 - see above
    """The database failed while writing or reading.

    A write that met this may or may not be stored: read before trying again.
    """

    code = "ledger_unavailable"


class LedgerClosed(StoreError):  # noqa: N818 - see above
    """The ledger was closed; nothing was written."""

    code = "ledger_closed"


_SQLITE: Final = {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE"}
_POSTGRESQL: Final = {"53100"}
_SYSTEM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class StorageFull(LedgerUnavailable):
    """The disk is full; nothing was written.

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
    """The error for callers; ``doing``: the operation that failed."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    failure = (
        StorageFull(f"the storage of the ledger is full, nothing can be written: {cause}")
        if is_full(error)
        else LedgerUnavailable(f"the database failed while {doing}: {cause!r}")
    )
    failure.__cause__ = error
    return failure
