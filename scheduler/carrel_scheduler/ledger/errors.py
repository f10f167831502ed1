"""What the ledger refuses beyond ``store``: bad input, a database it cannot use, one that is gone.

Every error carries a stable ``code``; passwords of database URLs never appear in a message.
"""

from typing import Any

from carrel_scheduler.ledger.store import StoreError


class InvalidArgument(StoreError):  # noqa: N818 - an outcome to handle, like its siblings
    """A value that cannot be stored or asked for.

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
    """The database cannot be opened; says what, why and what would help.

    Attributes:
        code: ``unknown_database``, ``driver_missing``, ``folder_missing``,
            ``folder_not_writable``, ``file_not_usable``, ``server_not_reachable``,
            ``newer_schema``.
    """

    def __init__(self, code: str, database: str, detail: str) -> None:
        super().__init__(f"{database}: {detail}")
        self.code, self.database, self.detail = code, database, detail


class LedgerUnavailable(StoreError):  # noqa: N818 - see above
    """The database failed while writing or reading.

    A write that met this may or may not be stored: read before trying again.
    """

    code = "ledger_unavailable"


class LedgerClosed(StoreError):  # noqa: N818 - see above
    """The ledger was closed; nothing was written."""

    code = "ledger_closed"
