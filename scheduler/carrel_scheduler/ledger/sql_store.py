"""``ObjectStore`` on SQL: writes go through the group commit, reads through a few threads.

A read begins after the writes that returned before it, and sees one snapshot. Watches of this
process are woken by its commits; commits of other processes are announced by PostgreSQL, and on
SQLite seen within ``POLL_SECONDS``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from carrel_scheduler.ledger.audit.rows import Sign
from carrel_scheduler.ledger.columns.codec import SOURCES, Encoded, encode, encode_status
from carrel_scheduler.ledger.database import READERS, Database
from carrel_scheduler.ledger.errors import LedgerClosed, failed
from carrel_scheduler.ledger.group_commit import GroupCommit, Transaction
from carrel_scheduler.ledger.rows import objects as object_rows
from carrel_scheduler.ledger.rows import queries as object_queries
from carrel_scheduler.ledger.store import Change, Page
from carrel_scheduler.ledger.watches.watch import Batch, Notifier, Watch
from carrel_scheduler.quarantine import Quarantine
from carrel_schema.objects import Object, ObjectT

if TYPE_CHECKING:
    from carrel_scheduler.ledger.watches.listen import CommitListener

P = ParamSpec("P")
T = TypeVar("T")
# Seconds between the queries of a waiting watch, by whether commits are announced.
POLL_SECONDS: Final = {True: 10.0, False: 0.5}


class SqlObjectStore:
    """See the module. Belongs to the event loop in which it is created.

    Args:
        database: migrated, see ``open``.
        clock: epoch seconds, for ``created_at`` where it is not set.
        ids: new unique ids.
        keep_changes: how many changes stay for watches.
        sign: signs the head of the audit log.
        quarantine: where objects go that cannot be read.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], float],
        ids: Callable[[], str],
        keep_changes: int,
        sign: Sign,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._quarantine = quarantine or Quarantine(clock)
        self._database, self._clock, self._ids = database, clock, ids
        self._notifier = Notifier()
        self._writer = GroupCommit(database.writer, self._notifier, keep_changes, sign)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="ledger-reader")
        self._listener = _listener(database, self._notifier)
        self._closed = False

    @property
    def trouble(self) -> str:
        """The reason why nothing can be written now, in words; empty if none is known."""
        return self._writer.trouble

    async def _read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def read() -> T:
            with self._database.reader.begin() as connection:
                return query(connection, *args, **kwargs)

        if self._closed:
            raise LedgerClosed("the ledger was closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, read)
        except SQLAlchemyError as error:
            raise failed("reading", error) from error

    async def create(self, obj: ObjectT) -> ObjectT:
        """See ``ObjectStore``."""
        new = self._named(encode(obj))
        made = await self._writer.run(lambda transaction: object_rows.create(transaction, new))
        return made.decode()

    def _named(self, new: Encoded[ObjectT]) -> Encoded[ObjectT]:
        meta = object_rows.replaced(
            new.meta,
            uid=new.meta.uid or self._ids(),
            created_at=new.meta.created_at or self._clock(),
        )
        return object_rows.replaced(new, meta=meta)

    async def get(self, kind: type[ObjectT], name: str, project: str = "") -> ObjectT:
        """See ``ObjectStore``."""
        return (await self._read(object_rows.by_name, kind, project, name)).decode()

    async def get_by_uid(self, kind: type[ObjectT], uid: str) -> ObjectT:
        """See ``ObjectStore``."""
        return (await self._read(object_rows.by_uid, kind, uid)).decode()

    async def list(
        self,
        kind: type[ObjectT],
        *,
        projects: Sequence[str] | None = None,
        phases: Sequence[str] | None = None,
        user: str | None = None,
        workload_kind: str | None = None,
        without_kinds: Sequence[str] = (),
        labels: dict[str, str] | None = None,
        search: str = "",
        newest_first: bool = False,
        limit: int | None = None,
        after: str = "",
    ) -> Page[ObjectT]:
        """See ``ObjectStore``."""
        filters = {
            "projects": projects,
            "phases": phases,
            "user": user,
            "workload_kind": workload_kind,
            "without_kinds": without_kinds,
            "wanted_labels": labels,
            "search": search,
        }
        page = object_queries.PageQuery(limit, after, newest_first)
        damaged: object_queries.Damaged = {}
        found = await self._read(object_queries.list_objects, kind, filters, page, damaged)
        self._set_aside(kind, [obj.meta.uid for obj in found.items], damaged)
        return found

    def _set_aside(
        self, kind: type[Object], read: Iterable[str], damaged: object_queries.Damaged
    ) -> None:
        for uid in read:
            self._quarantine.release(SOURCES[kind], uid)
        for uid, (name, error) in damaged.items():
            self._quarantine.put(SOURCES[kind], uid, error, name=name)

    async def update(self, obj: ObjectT) -> ObjectT:
        """See ``ObjectStore``."""
        wanted = encode(obj)
        made = await self._writer.run(
            lambda transaction: object_rows.update_spec(transaction, wanted)
        )
        return made.decode()

    async def update_status(self, obj: ObjectT) -> ObjectT:
        """See ``ObjectStore``."""
        kind, wanted = type(obj), encode_status(obj)

        def write(transaction: Transaction) -> Encoded[ObjectT]:
            object_rows.write_statuses(transaction, kind, [wanted])
            return object_rows.by_uid(transaction.connection, kind, wanted.uid)

        return (await self._writer.run(write)).decode()

    async def delete(
        self,
        kind: type[ObjectT],
        name: str,
        project: str = "",
        *,
        resource_version: int | None = None,
    ) -> ObjectT:
        """See ``ObjectStore``."""

        def remove(transaction: Transaction) -> Encoded[ObjectT]:
            old = object_rows.by_name(transaction.connection, kind, project, name)
            if resource_version is not None:
                object_rows.check_version(old, resource_version)
            return object_rows.remove(transaction, [old])[0]

        return (await self._writer.run(remove)).decode()

    def watch(
        self, kind: type[ObjectT], version: int, *, statuses: bool = True
    ) -> AsyncIterator[Change[ObjectT]]:
        """See ``ObjectStore``. A cancelled ``anext`` may be called again; ends on closing."""

        def recent(cursor: int) -> Batch[ObjectT] | None:
            return None if statuses else self._writer.recent.after(kind, cursor)

        async def read(cursor: int) -> Batch[ObjectT]:
            damaged: object_queries.Damaged = {}
            found = await self._read(object_queries.changes_after, kind, cursor, damaged)
            self._set_aside(kind, [one.object.meta.uid for one in found.changes], damaged)
            return found

        poll = POLL_SECONDS[self._database.listens]
        return Watch(read, self._notifier, version, poll, recent)

    async def close(self) -> None:
        """Commit the calls that wait, end the watches, close every connection."""
        if self._closed:
            return
        await self._writer.close()
        self._closed = True
        self._notifier.close()
        if self._listener is not None:
            await self._listener.close()
        await asyncio.to_thread(self._readers.shutdown)
        self._database.dispose()


def _listener(database: Database, notifier: Notifier) -> "CommitListener | None":
    if not database.listens:
        return None
    # Needs PostgreSQL's driver, which an installation on SQLite does not have.
    from carrel_scheduler.ledger.watches.listen import CommitListener

    return CommitListener(database.writer, notifier)
