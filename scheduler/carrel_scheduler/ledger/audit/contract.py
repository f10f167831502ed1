"""The interface of a ledger's audit log; see ``carrel_schema.governance.audit``."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from carrel_schema.governance.audit import AuditEntry, AuditHead, AuditVerification


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of entries; fields that are not set do not restrict.

    Attributes:
        user: who did it, or on whose behalf.
        kind: of the object.
        verb: what was done.
        name: of the object.
        scopes: it is in one of them.
        outcome: ``done`` or ``refused``.
        since: at this time or later; ``until``: before it (epoch seconds).
    """

    user: str = ""
    kind: str = ""
    verb: str = ""
    name: str = ""
    scopes: tuple[str, ...] | None = None
    outcome: str = ""
    since: float | None = None
    until: float | None = None


class AuditStore(Protocol):
    """Appends and reads entries. Nothing changes an entry."""

    async def add(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries; returns when they are durable. Raises ``StorageFull``."""
        ...

    async def read(
        self,
        where: AuditFilter,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> Sequence[AuditEntry]:
        """Read at most ``limit`` entries, the newest first, with smaller numbers than ``before``.

        With ``after`` instead the oldest first, those with larger numbers.
        """
        ...

    async def head(self) -> AuditHead:
        """Read both ends of the chain."""
        ...

    async def verify(self) -> AuditVerification:
        """Check every entry, in pieces: others read and write meanwhile."""
        ...

    async def prune(self, before: float, note: AuditEntry) -> int:
        """Remove the oldest entries that were made before a time; how many those were.

        The anchor is moved behind them, and ``note`` is appended with the anchor in it.
        """
        ...
