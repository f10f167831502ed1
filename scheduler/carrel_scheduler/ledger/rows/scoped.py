"""Scoped records in SQL; see ``ledger.scoped_records``."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from carrel_scheduler.ledger import named_secrets
from carrel_scheduler.ledger.columns.tables import scoped_records as table
from carrel_scheduler.ledger.errors import LedgerNotUsable, SecretsUnreadable
from carrel_scheduler.ledger.group_commit import GroupCommit, Transaction
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.ledger.secret_keys import SecretKeys
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.scopes import LEVELS, Scope

T = TypeVar("T")

_KEY: Final = (
    (table.c.kind == bindparam("which_kind"))
    & (table.c.scope == bindparam("which_scope"))
    & (table.c.name == bindparam("which_name"))
)
_ONE: Final = select(table).where(_KEY)
_NEW: Final = insert(table)
_CHANGE: Final = update(table).where(_KEY)
_REMOVE: Final = delete(table).where(_KEY)


class SqlScopedRecords:
    """See ``ScopedRecords``.

    Args:
        writer: of the ledger that the records are in.
        read: runs a query in a snapshot of its own.
        clock: epoch seconds.
    """

    def __init__(
        self,
        writer: GroupCommit,
        read: Callable[[Callable[[Connection], Any]], Any],
        clock: Callable[[], float],
    ) -> None:
        self._writer, self._query, self._clock = writer, read, clock

    async def put(
        self, record: ScopedRecord, *, actor: str, expected_version: int | None = None
    ) -> ScopedRecord:
        """See ``ScopedRecords``."""
        now = self._clock()

        def write(transaction: Transaction) -> ScopedRecord:
            found = _find(transaction.connection, record.kind, record.scope, record.name)
            _check_version(record, found, expected_version)
            made = msgspec.structs.replace(
                record,
                version=found.version + 1 if found else 1,
                created_at=found.created_at if found else now,
                created_by=found.created_by if found else actor,
                changed_at=now,
                changed_by=actor,
            )
            if found is None:
                transaction.connection.execute(_NEW, _row(made))
            else:
                key = _key(record.kind, record.scope, record.name)
                transaction.connection.execute(_CHANGE.values(_row(made)), key)
            _audit(transaction, "update" if found else "create", made, found, made)
            return made

        return await self._writer.run(write)

    async def get(self, kind: str, scope: Scope, name: str) -> ScopedRecord:
        """See ``ScopedRecords``."""
        found: ScopedRecord | None = await self._query(
            lambda connection: _find(connection, kind, scope, name)
        )
        if found is None:
            raise _missing(kind, scope, name)
        return found

    async def list(
        self, kind: str, *, scopes: Sequence[Scope] | None = None
    ) -> Sequence[ScopedRecord]:
        """See ``ScopedRecords``."""
        query = select(table).where(table.c.kind == kind)
        if scopes is not None:
            query = query.where(table.c.scope.in_([str(scope) for scope in scopes]))
        found: list[ScopedRecord] = await self._query(
            lambda connection: _in_order(connection.execute(query).all())
        )
        return found

    async def remove(
        self, kind: str, scope: Scope, name: str, *, expected_version: int | None = None
    ) -> ScopedRecord:
        """See ``ScopedRecords``."""

        def write(transaction: Transaction) -> ScopedRecord:
            found = _find(transaction.connection, kind, scope, name)
            if found is None:
                raise _missing(kind, scope, name)
            _check_version(found, found, expected_version)
            transaction.connection.execute(_REMOVE, _key(kind, scope, name))
            _audit(transaction, "delete", found, found, None)
            return found

        return await self._writer.run(write)

    async def remove_scope(self, scope: Scope) -> Sequence[ScopedRecord]:
        """See ``ScopedRecords``."""
        inside = table.c.scope == str(scope)

        def write(transaction: Transaction) -> Sequence[ScopedRecord]:
            found = transaction.connection.execute(select(table).where(inside)).all()
            transaction.connection.execute(delete(table).where(inside))
            gone = _in_order(found)
            for one in gone:
                _audit(transaction, "delete", one, one, None)
            return gone

        return await self._writer.run(write)


def _audit(
    transaction: Transaction,
    verb: str,
    which: ScopedRecord,
    before: ScopedRecord | None,
    after: ScopedRecord | None,
) -> None:
    transaction.record(
        verb,
        which.kind,
        scope=str(which.scope),
        name=which.name,
        before=None if before is None else bytes(before.content),
        after=None if after is None else bytes(after.content),
    )


def _key(kind: str, scope: Scope, name: str) -> dict[str, str]:
    return {"which_kind": kind, "which_scope": str(scope), "which_name": name}


def _find(connection: Connection, kind: str, scope: Scope, name: str) -> ScopedRecord | None:
    row = connection.execute(_ONE, _key(kind, scope, name)).one_or_none()
    return None if row is None else _record(row)


def _row(record: ScopedRecord) -> dict[str, Any]:
    row = msgspec.structs.asdict(record)
    return row | {"scope": str(record.scope), "content": bytes(record.content).decode()}


def _record(row: Row[Any]) -> ScopedRecord:
    fields = dict(zip(table.c.keys(), row, strict=True))
    scope, content = Scope.parse(fields.pop("scope")), fields.pop("content")
    return ScopedRecord(scope=scope, content=msgspec.Raw(content.encode()), **fields)


def _in_order(rows: Sequence[Row[Any]]) -> list[ScopedRecord]:
    return sorted(
        map(_record, rows),
        key=lambda one: (LEVELS.index(one.scope.level), one.scope.name, one.kind, one.name),
    )


def _check_version(
    record: ScopedRecord, found: ScopedRecord | None, expected_version: int | None
) -> None:
    where = f"{record.kind} {record.name!r} of {record.scope}"
    if expected_version is None or expected_version == (found.version if found else 0):
        return
    if expected_version == 0:
        raise ObjectExists(f"{where} exists")
    if found is None:
        raise ObjectNotFound(f"no {where}")
    raise VersionConflict(f"{where} has version {found.version}, not {expected_version}")


def _missing(kind: str, scope: Scope, name: str) -> ObjectNotFound:
    return ObjectNotFound(f"no {kind} {name!r} of {scope}")


def encrypt_anew(connection: Connection, keys: SecretKeys, *, discard: bool) -> tuple[int, int]:
    """Encrypt named secrets by the newest key; returns how many those were and were dropped.

    Raises ``LedgerNotUsable`` for values that no key fits, unless they are to be dropped.
    """
    rows = connection.execute(select(table).where(table.c.kind == named_secrets.KIND)).all()
    done, lost = 0, 0
    for record in map(_record, rows):
        content, owner = (
            named_secrets.content_of(record),
            named_secrets.owner_of(record.scope, record.name),
        )
        if keys.is_newest(content.encrypted):
            continue
        key = _key(record.kind, record.scope, record.name)
        try:
            values = keys.decrypt(owner, content.encrypted)
        except SecretsUnreadable as error:
            if not discard:
                told = f"no key fits the {owner}: restore the file of keys, or drop it"
                raise LedgerNotUsable("secrets_unreadable", owner, told) from error
            connection.execute(_REMOVE, key)
            lost += 1
            continue
        fresh = msgspec.structs.replace(content, encrypted=keys.encrypt(owner, values))
        text = msgspec.json.encode(fresh).decode()
        connection.execute(_CHANGE.values(content=text), key)
        done += 1
    return done, lost
