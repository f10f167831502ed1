"""The audit log in SQL (``audit.contract.AuditStore``)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from carrel_scheduler.ledger.audit import rows
from carrel_scheduler.ledger.audit.contract import AuditFilter
from carrel_scheduler.ledger.group_commit import GroupCommit, Transaction
from carrel_scheduler.ledger.secret_keys import SecretKeys
from carrel_schema.governance.audit import (
    AuditEntry,
    AuditHead,
    AuditVerification,
    ChainCheck,
    head_text,
)

CHECKED_AT_ONCE: Final = 1000


class SqlAudit:
    """See ``Audit``.

    Args:
        writer: of the ledger that the log is in.
        read: runs a query in a snapshot of its own.
        keys: sign the head.
    """

    def __init__(
        self,
        writer: GroupCommit,
        read: Callable[[Callable[[Connection], Any]], Awaitable[Any]],
        keys: SecretKeys,
    ) -> None:
        self._writer, self._query, self._keys = writer, read, keys

    async def add(self, entries: Sequence[AuditEntry]) -> None:
        """See ``Audit``."""
        arrivals = tuple(entries)
        await self._writer.run(lambda transaction: transaction.add_entries(arrivals))

    async def read(
        self,
        where: AuditFilter,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> Sequence[AuditEntry]:
        """See ``Audit``."""
        found: list[AuditEntry] = await self._query(
            lambda connection: rows.read(connection, where, before, after, limit)
        )
        return found

    async def head(self) -> AuditHead:
        """See ``Audit``."""
        found: AuditHead = await self._query(rows.read_head)
        return found

    async def verify(self) -> AuditVerification:
        """See ``Audit``. Entries that are removed or added meanwhile are no fault."""
        head = await self.head()
        check = ChainCheck(head.anchor_seq, head.anchor_hash)
        signed = self._keys.signed(head_text(head), head.signature)
        if not signed and (head.signature or head.seq):
            check.fail(head.seq, "the head was not signed by a key of this ledger")
        while not check.problem and check.seq < head.seq:
            limit = min(CHECKED_AT_ONCE, head.seq - check.seq)
            entries, wrong = await self._checked(check.seq, limit)
            check.take(entries)
            if wrong is not None and not check.problem:
                check.fail(*wrong)
            if not entries:
                break
        check.end(head.seq, head.hash)
        if check.problem and (await self.head()).anchor_seq != head.anchor_seq:
            return await self.verify()  # what was missing had been removed meanwhile
        return AuditVerification(
            ok=not check.problem,
            entries=check.entries,
            wrong_seq=check.wrong_seq,
            problem=check.problem,
            head=head,
        )

    async def _checked(
        self, after: int, limit: int
    ) -> tuple[list[AuditEntry], tuple[int, str] | None]:
        found: tuple[list[AuditEntry], tuple[int, str] | None] = await self._query(
            lambda connection: rows.read_checked(connection, after, limit)
        )
        return found

    async def prune(self, before: float, note: AuditEntry) -> int:
        """See ``Audit``."""

        def remove(transaction: Transaction) -> int:
            return rows.prune(transaction.connection, before, note, self._keys.sign)

        return await self._writer.run(remove)
