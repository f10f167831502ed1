"""``Ledger`` on SQL: the rows of the past beside the objects, in the same transactions.

What only the scheduler writes waits while the storage is full: it must neither be lost nor acted on
before it is recorded. What people ask for is refused then.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from sqlalchemy import Connection

from carrel_scheduler.ledger.accounting import usage
from carrel_scheduler.ledger.audit import rows as audit_rows
from carrel_scheduler.ledger.columns.codec import (
    Encoded,
    EncodedStatus,
    encode,
    encode_status,
    to_json,
)
from carrel_scheduler.ledger.database import Database
from carrel_scheduler.ledger.errors import LedgerNotUsable, SecretsUnreadable
from carrel_scheduler.ledger.group_commit import Transaction
from carrel_scheduler.ledger.named_secrets import NamedSecrets
from carrel_scheduler.ledger.records import (
    CopyKind,
    CopyRecord,
    Creation,
    Decision,
    Fenced,
    GpuUse,
    MetricPoint,
    NewWorkload,
    StoredAmount,
    Transition,
    Usage,
)
from carrel_scheduler.ledger.rows import copies as copy_rows
from carrel_scheduler.ledger.rows import curves as metric_rows
from carrel_scheduler.ledger.rows import gpu_use, retained, totals
from carrel_scheduler.ledger.rows import history as history_rows
from carrel_scheduler.ledger.rows import objects as object_rows
from carrel_scheduler.ledger.rows import scoped as scoped_rows
from carrel_scheduler.ledger.rows import small as small_rows
from carrel_scheduler.ledger.rows.audit_store import SqlAudit
from carrel_scheduler.ledger.rows.samples import SqlSamples
from carrel_scheduler.ledger.rows.scoped import SqlScopedRecords
from carrel_scheduler.ledger.secret_keys import SecretKeys
from carrel_scheduler.ledger.sql_store import SqlObjectStore
from carrel_schema.files import StoredCopy
from carrel_schema.governance.audit import head_text
from carrel_schema.governance.costs import PricePeriod
from carrel_schema.governance.retention import RetainedKind
from carrel_schema.objects import Meta, Workload


class SqlLedger(SqlObjectStore):
    """See ``Ledger``; the constructor is that of ``SqlObjectStore``, with keys for secrets."""

    def __init__(self, database: Database, *, keys: SecretKeys, **options: Any) -> None:
        super().__init__(database, sign=keys.sign, **options)
        self._keys = keys
        self._audit = SqlAudit(self._writer, self._read, keys)
        self._scoped = SqlScopedRecords(self._writer, self._read, self._clock)
        self._named_secrets = NamedSecrets(self._scoped, keys)
        self._samples = SqlSamples(self._writer, self._read)

    @property
    def scoped(self) -> SqlScopedRecords:
        """See ``Ledger``."""
        return self._scoped

    @property
    def named_secrets(self) -> NamedSecrets:
        """See ``Ledger``."""
        return self._named_secrets

    @property
    def samples(self) -> SqlSamples:
        """See ``Ledger``."""
        return self._samples

    @property
    def audit(self) -> SqlAudit:
        """See ``Ledger``."""
        return self._audit

    async def begin_epoch(self) -> int:
        """See ``Ledger``."""

        def begin(transaction: Transaction) -> int:
            transaction.epoch += 1
            return transaction.epoch

        return await self._writer.run(begin, waits=True)

    async def record(
        self,
        *,
        epoch: int,
        statuses: Sequence[Workload] = (),
        transitions: Sequence[Transition] = (),
        decisions: Sequence[Decision] = (),
        removed: Sequence[Workload] = (),
    ) -> Sequence[Meta]:
        """See ``Ledger``. An object may get its last status and be removed by the same call."""
        wanted = [encode_status(obj) for obj in statuses]
        gone = [(obj.meta.uid, obj.meta.resource_version) for obj in removed]
        rows, actions = tuple(transitions), tuple(decisions)

        def write(transaction: Transaction) -> list[Meta]:
            _check_epoch(transaction, epoch)
            made = _write_objects(transaction, wanted, gone)
            history_rows.add_transitions(transaction.connection, rows)
            history_rows.add_decisions(transaction.connection, actions)
            return made

        return await self._writer.run(write, waits=True)

    async def create_workload(
        self, workload: Workload, *, secrets: Mapping[str, str], transition: Transition
    ) -> Workload:
        """See ``Ledger``. The transition gets the workload's uid."""
        new = self._named(encode(workload))
        encrypted = self._encrypted(new.meta.uid, secrets)
        row = msgspec.structs.replace(transition, workload_uid=new.meta.uid)

        def write(transaction: Transaction) -> Encoded[Workload]:
            made = object_rows.create(transaction, new)
            history_rows.add_transitions(transaction.connection, [row])
            small_rows.add_secrets(transaction.connection, made.meta.uid, encrypted)
            return made

        return (await self._writer.run(write)).decode()

    async def create_workloads(self, items: Sequence[NewWorkload]) -> Sequence[Creation]:
        """See ``Ledger``."""
        named = [self._named(encode(item.workload)) for item in items]
        rows = {
            new.meta.uid: msgspec.structs.replace(item.transition, workload_uid=new.meta.uid)
            for new, item in zip(named, items, strict=True)
        }
        secrets = {
            new.meta.uid: self._encrypted(new.meta.uid, item.secrets)
            for new, item in zip(named, items, strict=True)
        }

        def write(transaction: Transaction) -> list[Creation]:
            creations = object_rows.create_many(transaction, named)
            made = [one.meta.uid for one in creations if one.found is None]
            history_rows.add_transitions(transaction.connection, [rows[uid] for uid in made])
            for uid in made:
                small_rows.add_secrets(transaction.connection, uid, secrets[uid])
            return [Creation(meta=one.meta, found=one.found) for one in creations]

        return await self._writer.run(write)

    async def set_secrets(self, workload_uid: str, secrets: Mapping[str, str]) -> None:
        """See ``Ledger``; raises ``ObjectNotFound``."""
        encrypted = self._encrypted(workload_uid, secrets)
        await self._writer.run(
            lambda transaction: small_rows.write_secrets(
                transaction.connection, workload_uid, encrypted
            )
        )

    async def secrets(self, workload_uid: str) -> Mapping[str, str]:
        """See ``Ledger``."""
        return (await self.secrets_of([workload_uid])).get(workload_uid, {})

    async def secrets_of(self, workload_uids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """See ``Ledger``."""
        found = await self._read(small_rows.read_secrets, tuple(workload_uids))
        return {uid: self._keys.decrypt(uid, stored) for uid, stored in found.items()}

    async def encrypt_secrets_anew(self, *, discard: bool = False) -> tuple[int, int]:
        """Encrypt by the newest key what is not; returns how many those were and were dropped.

        Nothing is written unless all can be read; then raises ``LedgerNotUsable``. With ``discard``
        what cannot be read is dropped.
        """

        def write(transaction: Transaction) -> tuple[int, int]:
            stored = small_rows.read_secrets(transaction.connection)
            old = {uid: text for uid, text in stored.items() if not self._keys.is_newest(text)}
            fresh: dict[str, str] = {}
            for uid, text in old.items():
                try:
                    fresh[uid] = self._encrypted(uid, self._keys.decrypt(uid, text))
                except SecretsUnreadable:
                    fresh[uid] = ""
            dropped = sum(not text for text in fresh.values())
            if dropped and not discard:
                raise LedgerNotUsable(
                    "secrets_unreadable",
                    self._database.label,
                    f"no key fits the secrets of {dropped} workloads: restore the file of keys "
                    "that belongs to it, or drop these secrets (docs/security.md)",
                )
            for uid, text in fresh.items():
                small_rows.write_secrets(transaction.connection, uid, text)
            named, lost = scoped_rows.encrypt_anew(
                transaction.connection, self._keys, discard=discard
            )
            head = audit_rows.read_head(transaction.connection)
            if self._keys.signed(head_text(head), head.signature):
                audit_rows.write_head(transaction.connection, head, self._keys.sign)
            return len(fresh) - dropped + named, dropped + lost

        return await self._writer.run(write)

    def _encrypted(self, uid: str, environment: Mapping[str, str]) -> str:
        return self._keys.encrypt(uid, environment) if environment else ""

    async def claim_idempotency_key(
        self, scope: str, key: str, digest: str, workload_uid: str, now: float
    ) -> tuple[str, str]:
        """See ``Ledger``. A key is forgotten after 24 hours."""
        return await self._writer.run(
            lambda transaction: small_rows.claim_key(
                transaction.connection, scope, key, digest, workload_uid, now
            )
        )

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
        return await self._read(
            history_rows.read_transitions,
            workload_uid=workload_uid,
            projects=projects,
            since=since,
            until=until,
            limit=limit,
        )

    async def decisions(
        self, *, workload_uid: str | None = None, limit: int = 1000
    ) -> Sequence[Decision]:
        """See ``Ledger``."""
        return await self._read(history_rows.read_decisions, workload_uid=workload_uid, limit=limit)

    async def size_bytes(self) -> int:
        """See ``Ledger``."""
        found: int = await self._read(small_rows.size_bytes)
        return found

    async def stored_amount(self, kind: RetainedKind, before: float) -> StoredAmount:
        """See ``Ledger``."""
        return await self._read(retained.amount, kind, before)

    async def remove_decisions(self, before: float, most: int) -> int:
        """See ``Ledger``."""
        return await self._writer.run(
            lambda transaction: retained.remove_decisions(transaction.connection, before, most)
        )

    async def add_gpu_use(self, pieces: Sequence[GpuUse]) -> None:
        """See ``Ledger``."""
        arrivals = tuple(pieces)
        await self._writer.run(lambda transaction: gpu_use.add(transaction.connection, arrivals))

    async def add_metrics(self, workload_uid: str, points: Sequence[MetricPoint]) -> None:
        """See ``Ledger``."""
        arrivals = tuple(points)
        await self._writer.run(
            lambda transaction: metric_rows.add(transaction.connection, workload_uid, arrivals),
            waits=True,
        )

    async def remove_orphaned_metrics(self, most: int) -> int:
        """See ``Ledger``."""
        return await self._writer.run(
            lambda transaction: metric_rows.remove_orphans(transaction.connection, most)
        )

    async def metrics(
        self, workload_uid: str, *, names: Sequence[str] | None = None, max_points: int = 500
    ) -> Mapping[str, Sequence[MetricPoint]]:
        """See ``Ledger``."""
        return await self._read(metric_rows.read, workload_uid, names, max_points)

    async def append_study(
        self, workload_uid: str, entries: Sequence[str], *, first: int, epoch: int
    ) -> None:
        """See ``Ledger``."""
        arrivals = tuple(entries)

        def write(transaction: Transaction) -> None:
            _check_epoch(transaction, epoch)
            small_rows.append_study(transaction.connection, workload_uid, arrivals, first)

        await self._writer.run(write, waits=True)

    async def study(
        self, workload_uid: str, *, first: int = 0, limit: int | None = None
    ) -> Sequence[str]:
        """See ``Ledger``."""
        return await self._read(small_rows.read_study, workload_uid, first, limit)

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
        """See ``Ledger`` and the module ``usage``."""
        usage.check_range(by, since, until)

        def read(connection: Connection) -> Sequence[Usage]:
            windows = [window[:2] for window in usage.price_windows(prices, since, until)]
            parts = totals.windows(windows)
            aggregated = totals.AggregatedUsage(
                connection, since, until, projects, parts, departments
            )
            return usage.account(
                history_rows.spans(connection, since, until, projects, aggregated.elsewhere()),
                gpu_use.read(connection, since, until, projects),
                by=by,
                since=since,
                until=until,
                departments=departments,
                prices=prices,
                aggregated=aggregated.sums(by),
            )

        return await self._read(read)

    async def aggregate_usage(self, most: int) -> int:
        """See ``Ledger``."""
        return await self._writer.run(
            lambda transaction: totals.aggregate(transaction.connection, most)
        )

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
        """See ``Ledger`` and the module ``usage``."""
        usage.check_range(by, since, until)

        def read(connection: Connection) -> Mapping[str, Sequence[float]]:
            parts = totals.equal_parts(connection, since, until, buckets)
            aggregated = totals.AggregatedUsage(
                connection, since, until, projects, parts, departments
            )
            found = history_rows.spans(connection, since, until, projects, aggregated.elsewhere())
            lines = usage.series(
                found,
                by=by,
                since=since,
                until=until,
                buckets=buckets,
                departments=departments,
            )
            keys = first = None
            if largest is not None and (
                by != "department" or len({*departments.values()}) >= largest
            ):
                others = aggregated.gpu_sums_of_all_parts(by)
                keys = usage.largest(by, largest, lines, others, departments)
                first = usage.first_columns(by, keys, departments)
            return usage.with_totals(
                lines,
                aggregated.gpu_sums(by, first),
                by=by,
                buckets=buckets,
                departments=departments,
                keys=keys,
            )

        return await self._read(read)

    async def add_copy(self, kind: CopyKind, uid: str, copy: StoredCopy) -> CopyRecord:
        """See ``Ledger``."""
        return await self._writer.run(
            lambda transaction: copy_rows.add(transaction.connection, kind, uid, copy)
        )

    async def copies(
        self, kind: CopyKind | None = None, project: str | None = None, name: str | None = None
    ) -> Sequence[CopyRecord]:
        """See ``Ledger``."""
        return await self._read(copy_rows.read, kind, project, name)

    async def remove_copy(self, uid: str) -> None:
        """See ``Ledger``."""
        await self._writer.run(lambda transaction: copy_rows.remove(transaction.connection, uid))

    async def settings(self) -> Mapping[str, Any]:
        """See ``Ledger``."""
        return await self._read(small_rows.read_settings)

    async def put_setting(self, key: str, value: Any) -> None:
        """See ``Ledger``."""
        text = to_json(value, key)
        await self._writer.run(
            lambda transaction: small_rows.write_setting(transaction.connection, key, text)
        )


def _check_epoch(transaction: Transaction, epoch: int) -> None:
    if epoch != transaction.epoch:
        raise Fenced(f"epoch {epoch} is over: the present scheduler's is {transaction.epoch}")


def _write_objects(
    transaction: Transaction,
    statuses: Sequence[EncodedStatus],
    removed: Sequence[tuple[str, int]],
) -> list[Meta]:
    """Statuses, then removals; what is stored is compared with both before either is written."""
    object_rows.check_current(transaction.connection, Workload, removed)
    made = object_rows.write_statuses(transaction, Workload, statuses)
    leaving = dict(removed)
    if leaving:
        last = object_rows.by_uids(transaction.connection, Workload, tuple(leaving))
        object_rows.remove(transaction, [last[uid] for uid in leaving])
    return made
