"""The rows of the past, beside objects that are stored elsewhere.

Every workload has an entry here, too: its identity without what it asks for. It holds the name for
one workload of its project, whatever its kind, keeps secrets and logs of studies with it, and is
written together with the first row, before the object is made. So a name is given once, and an
object without rows, or rows without an object, are what a crash left, and are mended.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select

from carrel_scheduler.ledger.audit.contract import AuditStore
from carrel_scheduler.ledger.columns import codec
from carrel_scheduler.ledger.columns.tables import changes, objects, specs, store_state, transitions
from carrel_scheduler.ledger.database import Database
from carrel_scheduler.ledger.group_commit import Transaction
from carrel_scheduler.ledger.named_secrets import NamedSecrets
from carrel_scheduler.ledger.open import KEEP_CHANGES, keys_beside, migrated
from carrel_scheduler.ledger.records import (
    CopyKind,
    CopyRecord,
    Decision,
    Fenced,
    GpuUse,
    MetricPoint,
    StoredAmount,
    Transition,
    Usage,
)
from carrel_scheduler.ledger.rows import history as history_rows
from carrel_scheduler.ledger.rows import objects as object_rows
from carrel_scheduler.ledger.samples import SampleStore
from carrel_scheduler.ledger.scoped_records import ScopedRecords
from carrel_scheduler.ledger.secret_keys import SecretKeys
from carrel_scheduler.ledger.sql_ledger import SqlLedger
from carrel_schema.files import StoredCopy
from carrel_schema.governance.costs import PricePeriod
from carrel_schema.governance.retention import RetainedKind
from carrel_schema.objects import Meta, Workload, WorkloadSpec

_EPOCH = select(store_state.c.epoch)
_LAST = select(transitions).where(
    transitions.c.id.in_(
        select(func.max(transitions.c.id))
        .where(transitions.c.workload_uid.in_(bindparam("uids", expanding=True)))
        .group_by(transitions.c.workload_uid)
    )
)
_WITHDRAW = tuple(
    delete(table).where(table.c[column] == bindparam("which"))
    for table, column in (
        (transitions, "workload_uid"),
        (changes, "uid"),
        (specs, "uid"),
        (objects, "uid"),
    )
)
# Well below the number of parameters that a statement may have.
_AT_ONCE = 500


def entry_of(workload: Workload) -> Workload:
    """The entry that is stored here for a workload."""
    meta, spec = workload.meta, workload.spec
    identity = Meta(
        name=meta.name,
        project=meta.project,
        uid=meta.uid,
        created_at=meta.created_at,
        created_by=meta.created_by,
    )
    return Workload(meta=identity, spec=WorkloadSpec(kind=spec.kind, user=spec.user))


class Rows(SqlLedger):
    """See the module; made by ``open_rows``."""

    def __init__(self, database: Database, **options: Any) -> None:
        super().__init__(database, **options)
        self._writer.tells_of_objects = False  # whoever writes the objects does

    async def epoch(self) -> int:
        """The epoch of the present scheduler."""
        return await self._read(lambda connection: int(connection.execute(_EPOCH).scalar_one()))

    async def write(
        self,
        epoch: int,
        rows: Sequence[Transition],
        decisions: Sequence[Decision],
        gone: Sequence[str] = (),
    ) -> None:
        """Append rows and remove the entries of deleted objects. Raises ``Fenced``."""
        arrivals, actions, uids = tuple(rows), tuple(decisions), tuple(gone)

        def append(transaction: Transaction) -> None:
            if epoch != transaction.epoch:
                raise Fenced(f"epoch {epoch} is over: the present one is {transaction.epoch}")
            there = object_rows.by_uids(transaction.connection, Workload, uids)
            object_rows.remove(transaction, list(there.values()))
            history_rows.add_transitions(transaction.connection, arrivals)
            history_rows.add_decisions(transaction.connection, actions)

        await self._writer.run(append, waits=True)

    async def withdraw(self, uid: str) -> None:
        """Remove the entry and first row of a workload that was never created."""

        def undo(transaction: Transaction) -> None:
            for statement in _WITHDRAW:
                transaction.connection.execute(statement, {"which": uid})

        await self._writer.run(undo, waits=True)

    async def drop(self, uid: str) -> None:
        """Remove the entry of a deleted workload; its history stays."""

        def remove(transaction: Transaction) -> None:
            there = object_rows.by_uids(transaction.connection, Workload, [uid])
            object_rows.remove(transaction, list(there.values()))

        await self._writer.run(remove, waits=True)

    async def last_of(self, uids: Sequence[str]) -> Mapping[str, Transition]:
        """The last row of each workload with any."""
        found: dict[str, Transition] = {}
        for start in range(0, len(uids), _AT_ONCE):
            rows = await self._read(_last_rows, list(uids[start : start + _AT_ONCE]))
            found |= {row.workload_uid: row for row in rows}
        return found


def _last_rows(connection: Connection, uids: list[str]) -> list[Transition]:
    rows = connection.execute(_LAST, {"uids": uids}).mappings()
    return [codec.transition(dict(row)) for row in rows]


async def open_rows(
    url: str,
    *,
    clock: Callable[[], float],
    ids: Callable[[], str],
    keys: SecretKeys | None = None,
) -> Rows:
    """Open the database of rows, see ``ledger.open``; raises ``LedgerNotUsable``."""
    database = await asyncio.to_thread(migrated, url)
    found = keys or keys_beside(database)
    return Rows(database, keys=found, clock=clock, ids=ids, keep_changes=KEEP_CHANGES)


class RowLedger:
    """The part of ``Ledger`` that is about rows alone, done by the database of rows."""

    rows: Rows

    @property
    def trouble(self) -> str:
        """See ``Ledger``."""
        return self.rows.trouble

    async def set_secrets(self, workload_uid: str, secrets: Mapping[str, str]) -> None:
        """See ``Ledger``."""
        await self.rows.set_secrets(workload_uid, secrets)

    async def secrets(self, workload_uid: str) -> Mapping[str, str]:
        """See ``Ledger``."""
        return await self.rows.secrets(workload_uid)

    async def secrets_of(self, workload_uids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """See ``Ledger``."""
        return await self.rows.secrets_of(workload_uids)

    async def claim_idempotency_key(
        self, scope: str, key: str, digest: str, workload_uid: str, now: float
    ) -> tuple[str, str]:
        """See ``Ledger``."""
        return await self.rows.claim_idempotency_key(scope, key, digest, workload_uid, now)

    async def transitions(
        self,
        *,
        workload_uid: str | None = None,
        projects: Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 1000,
    ) -> Sequence[Transition]:
        """See ``Ledger``."""
        return await self.rows.transitions(
            workload_uid=workload_uid, projects=projects, since=since, until=until, limit=limit
        )

    async def decisions(
        self, *, workload_uid: str | None = None, limit: int = 1000
    ) -> Sequence[Decision]:
        """See ``Ledger``."""
        return await self.rows.decisions(workload_uid=workload_uid, limit=limit)

    async def add_metrics(self, workload_uid: str, points: Sequence[MetricPoint]) -> None:
        """See ``Ledger``."""
        await self.rows.add_metrics(workload_uid, points)

    async def add_gpu_use(self, pieces: Sequence[GpuUse]) -> None:
        """See ``Ledger``."""
        await self.rows.add_gpu_use(pieces)

    async def remove_orphaned_metrics(self, most: int) -> int:
        """See ``Ledger``."""
        return await self.rows.remove_orphaned_metrics(most)

    async def metrics(
        self, workload_uid: str, *, names: Sequence[str] | None = None, max_points: int = 500
    ) -> Mapping[str, Sequence[MetricPoint]]:
        """See ``Ledger``."""
        return await self.rows.metrics(workload_uid, names=names, max_points=max_points)

    async def append_study(
        self, workload_uid: str, entries: Sequence[str], *, first: int, epoch: int
    ) -> None:
        """See ``Ledger``."""
        await self.rows.append_study(workload_uid, entries, first=first, epoch=epoch)

    async def study(
        self, workload_uid: str, *, first: int = 0, limit: int | None = None
    ) -> Sequence[str]:
        """See ``Ledger``."""
        return await self.rows.study(workload_uid, first=first, limit=limit)

    async def usage(
        self,
        *,
        by: str,
        since: float,
        until: float,
        projects: Sequence[str] | None = None,
        departments: Mapping[str, str] = MappingProxyType({}),
        prices: Sequence[PricePeriod] = (),
    ) -> Sequence[Usage]:
        """See ``Ledger``."""
        return await self.rows.usage(
            by=by,
            since=since,
            until=until,
            projects=projects,
            departments=departments,
            prices=prices,
        )

    async def aggregate_usage(self, most: int) -> int:
        """See ``Ledger``."""
        return await self.rows.aggregate_usage(most)

    async def usage_series(
        self,
        *,
        by: str,
        since: float,
        until: float,
        buckets: int,
        projects: Sequence[str] | None = None,
        departments: Mapping[str, str] = MappingProxyType({}),
        largest: int | None = None,
    ) -> Mapping[str, Sequence[float]]:
        """See ``Ledger``."""
        return await self.rows.usage_series(
            by=by,
            since=since,
            until=until,
            buckets=buckets,
            projects=projects,
            departments=departments,
            largest=largest,
        )

    async def add_copy(self, kind: CopyKind, uid: str, copy: StoredCopy) -> CopyRecord:
        """See ``Ledger``."""
        return await self.rows.add_copy(kind, uid, copy)

    async def copies(
        self, kind: CopyKind | None = None, project: str | None = None, name: str | None = None
    ) -> Sequence[CopyRecord]:
        """See ``Ledger``."""
        return await self.rows.copies(kind, project, name)

    async def remove_copy(self, uid: str) -> None:
        """See ``Ledger``."""
        await self.rows.remove_copy(uid)

    @property
    def scoped(self) -> ScopedRecords:
        """See ``Ledger``."""
        return self.rows.scoped

    @property
    def named_secrets(self) -> NamedSecrets:
        """See ``Ledger``."""
        return self.rows.named_secrets

    @property
    def samples(self) -> SampleStore:
        """See ``Ledger``."""
        return self.rows.samples

    @property
    def audit(self) -> AuditStore:
        """See ``Ledger``."""
        return self.rows.audit

    async def size_bytes(self) -> int:
        """See ``Ledger``."""
        return await self.rows.size_bytes()

    async def stored_amount(self, kind: RetainedKind, before: float) -> StoredAmount:
        """See ``Ledger``."""
        return await self.rows.stored_amount(kind, before)

    async def remove_decisions(self, before: float, most: int) -> int:
        """See ``Ledger``."""
        return await self.rows.remove_decisions(before, most)

    async def settings(self) -> Mapping[str, Any]:
        """See ``Ledger``."""
        return await self.rows.settings()

    async def put_setting(self, key: str, value: Any) -> None:
        """See ``Ledger``."""
        await self.rows.put_setting(key, value)
