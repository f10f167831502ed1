"""Group commit: calls that arrive while the disk is busy share the next commit of one thread.

A transaction holds the store's counters, locked from its first statement to its commit. Because
every writer holds that lock, versions are committed in their order, by however many processes:
whoever sees version 7 will never see a 6 appear later.

Each call runs in a savepoint of its own inside the common transaction, in order of arrival. Its
caller hears of it only after the commit; a call that fails is rolled back alone. A caller that is
cancelled while its call waits does not take it back.

Nothing ends the thread but ``close``: whatever goes wrong fails the calls of that commit only.
While the storage is full, calls are refused with ``StorageFull``; those that ask for it are
repeated until there is room, and a write without effect finds out when that is.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, delete, select, tuple_, update
from sqlalchemy.exc import DataError, SQLAlchemyError

from carrel_scheduler.ledger.audit import rows as audit_rows
from carrel_scheduler.ledger.audit.actor import ACTOR, Actor
from carrel_scheduler.ledger.audit.rows import Sign
from carrel_scheduler.ledger.columns.codec import insert_many
from carrel_scheduler.ledger.columns.tables import changes, objects, specs, store_state
from carrel_scheduler.ledger.errors import (
    InvalidArgument,
    LedgerClosed,
    StorageFull,
    failed,
    is_full,
)
from carrel_scheduler.ledger.watches.watch import CHANNEL, Commit, Fresh, Notifier, RecentCommits
from carrel_schema.governance.audit import AuditEntry
from carrel_schema.objects import Meta

log = logging.getLogger(__name__)
T = TypeVar("T")
LARGEST_GROUP: Final = 256
ROOM_SECONDS: Final = 0.5
"""The interval at which a full storage is tried again."""
_NO_CHANGE: Final = update(store_state).values(version=store_state.c.version)
_LOCK: Final = select(
    store_state.c.version, store_state.c.dropped_through, store_state.c.epoch
).with_for_update()
_SAVE: Final = update(store_state)
# Old changes are dropped this many at a time, so that few commits pay for it.
_DROP_AT_ONCE: Final = 500
MOST_IDENTITIES: Final = 100_000


class Identities:
    """``Meta`` by uid, of objects that were committed lately; used by the thread that writes.

    An entry is good for the version that it carries and for no other; the oldest are dropped first.
    """

    def __init__(self) -> None:
        self._metas: dict[str, Meta] = {}

    def get(self, uid: str) -> Meta | None:
        """The latest version that is kept."""
        return self._metas.get(uid)

    def keep(self, metas: Mapping[str, Meta]) -> None:
        """Keep what was committed."""
        for uid, meta in metas.items():
            self._metas.pop(uid, None)
            self._metas[uid] = meta
        while len(self._metas) > MOST_IDENTITIES:
            del self._metas[next(iter(self._metas))]


class CallStart(NamedTuple):
    """The version and epoch at which a call began."""

    version: int
    epoch: int
    changes: int
    fresh: int
    entries: int


class Transaction:
    """Counters and pending changes of one group of calls.

    Attributes:
        version: the store's version so far.
        epoch: that of the present scheduler.
        actor: who asked for the present call; ``None``: the scheduler itself.
        tells_of_objects: changes of objects are told to the audit log where they are written.
    """

    def __init__(
        self,
        connection: Connection,
        known: Identities,
        counters: tuple[int, int, int],
    ) -> None:
        version, dropped_through, epoch = counters
        self.connection, self.version, self.epoch = connection, version, epoch
        self._dropped_through = dropped_through
        self._begun_with = (version, epoch)
        self._changes: list[dict[str, Any]] = []
        self._fresh: list[Fresh] = []
        self._known = known
        self._seen: dict[str, Meta] = {}
        self._entries: list[AuditEntry] = []
        self.actor: Actor | None = None
        self.tells_of_objects = True

    @classmethod
    def begin(cls, connection: Connection, known: Identities | None = None) -> Self:
        """Lock the counters; ``known`` has the identities from earlier transactions."""
        version, dropped_through, epoch = connection.execute(_LOCK).one()
        counters = (version, dropped_through, epoch)
        return cls(connection, Identities() if known is None else known, counters)

    def next_version(self) -> int:
        """A new version for one change."""
        self.version += 1
        return self.version

    def add_change(self, columns: dict[str, Any], fresh: Fresh | None = None) -> None:
        """A row for watches, written with all others at the end.

        ``fresh`` is the same for watches of this process, unless only a status changed.
        That is safe only because nothing in it can be refused: all of it was stored before, as
        part of the object, by the call that adds it.
        """
        self._changes.append(columns)
        if fresh is not None:
            self._fresh.append(fresh)

    def add_entries(self, entries: Iterable[AuditEntry]) -> None:
        """Entries of the audit log, appended with all others at the end."""
        self._entries += entries
        if self.actor is not None:
            self.actor.recorded += 1

    def record(self, verb: str, kind: str, **change: Any) -> None:
        """Add a requested change to the audit log; see ``Actor``."""
        if self.actor is not None:
            self.add_entries([self.actor.entry_of_change(verb, kind, **change)])

    def remember(self, metas: Iterable[Meta]) -> None:
        """Keep the identities as this transaction leaves them."""
        for meta in metas:
            self._seen[meta.uid] = meta

    def remembered(self, uid: str, version: int) -> Meta | None:
        """The identity of an object at a version, if this process had to do with it lately."""
        meta = self._seen.get(uid) or self._known.get(uid)
        return meta if meta is not None and meta.resource_version == version else None

    def committed(self) -> None:
        """Whether what this transaction knows is valid for later ones."""
        self._known.keep(self._seen)

    def mark(self) -> CallStart:
        """Remember where a call begins."""
        return CallStart(
            self.version, self.epoch, len(self._changes), len(self._fresh), len(self._entries)
        )

    def rewind(self, mark: CallStart) -> None:
        """Undo what a call did since the mark."""
        self.version, self.epoch = mark.version, mark.epoch
        self._seen.clear()
        del self._changes[mark.changes :], self._fresh[mark.fresh :]
        del self._entries[mark.entries :]

    def finish(self, keep_changes: int, sign: Sign) -> Commit | None:
        """Write what is pending; the caller commits. Returns the changes for watches."""
        if self._entries:
            audit_rows.append(self.connection, self._entries, sign)
        if (self.version, self.epoch) == self._begun_with:
            return None
        insert_many(self.connection, changes, self._changes)
        self._drop_old_changes(keep_changes)
        self.connection.execute(
            _SAVE,
            {
                "version": self.version,
                "epoch": self.epoch,
                "dropped_through": self._dropped_through,
            },
        )
        if self.connection.dialect.name == "postgresql":
            self.connection.exec_driver_sql(f"NOTIFY {CHANNEL}")
        if not self._changes:
            return None
        return Commit(self._begun_with[0], self.version, tuple(self._fresh))

    def _drop_old_changes(self, keep: int) -> None:
        through = self.version - keep
        if through - self._dropped_through < min(_DROP_AT_ONCE, max(1, keep // 10)):
            return
        dropped = changes.c.version <= through
        self.connection.execute(delete(specs).where(*_unused_specs(dropped)))
        self.connection.execute(delete(changes).where(dropped))
        self._dropped_through = through


def _unused_specs(dropped: ColumnElement[bool]) -> tuple[ColumnElement[bool], ...]:
    """Specifications in dropped changes to which nothing else refers."""
    key = tuple_(specs.c.uid, specs.c.generation)
    return (
        specs.c.uid.in_(select(changes.c.uid).where(dropped)),
        key.not_in(select(objects.c.uid, objects.c.generation).where(objects.c.uid == specs.c.uid)),
        key.not_in(
            select(changes.c.uid, changes.c.generation).where(
                changes.c.uid == specs.c.uid, ~dropped
            )
        ),
    )


class _PendingWrite(NamedTuple):
    write: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    actor: Actor | None


class _WriteResult(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: Exception | None


class GroupCommit:
    """The writer of one ledger; belongs to the event loop that it is made in.

    ``recent`` is what it committed lately; ``trouble`` says why nothing can be written, empty if
    nothing is known to be wrong. ``tells_of_objects``: see ``Transaction``.

    Args:
        engine: of one connection.
        notifier: told of commits that changed objects, before their callers hear.
        keep_changes: how many changes stay for watches.
        sign: signs the head of the audit log.
    """

    def __init__(self, engine: Engine, notifier: Notifier, keep_changes: int, sign: Sign) -> None:
        self._sign = sign
        self._engine, self._notifier, self._keep_changes = engine, notifier, keep_changes
        self.recent, self._known = RecentCommits(), Identities()
        self.trouble, self.tells_of_objects = "", True
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_PendingWrite | None] = SimpleQueue()
        self._closed = False
        # A daemon: what it has not committed was promised to nobody.
        self._thread = threading.Thread(target=self._serve, name="ledger-writer", daemon=True)
        self._thread.start()

    async def run(self, write: Callable[[Transaction], T], *, waits: bool = False) -> T:
        """Run ``write`` in a transaction; returns when it is durable.

        Args:
            write: may be called again after a failure: it must not keep anything of earlier calls.
            waits: while the storage is full, try again until there is room.

        Raises what ``write`` raised, ``StorageFull``, ``LedgerUnavailable`` or ``LedgerClosed``.
        """
        while True:
            if self._closed:
                raise LedgerClosed("the ledger was closed")
            future: asyncio.Future[T] = self._loop.create_future()
            self._queue.put(_PendingWrite(write, future, ACTOR.get()))
            try:
                return await future
            except StorageFull:
                if not waits:
                    raise
            await asyncio.sleep(ROOM_SECONDS)

    async def close(self) -> None:
        """Commit the calls that wait, then end the thread."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        closing = False
        while not closing:
            group, closing = self._next_group()
            outcomes, news = self._commit(group)
            try:
                self._loop.call_soon_threadsafe(self._deliver, outcomes, news)
            except RuntimeError:
                return  # the event loop has ended, and with it everybody who could be told

    def _next_group(self) -> tuple[list[_PendingWrite], bool]:
        """Wait for a call, then take along all that have arrived; true when it is the last.

        While the storage is full the group may be empty.
        """
        group: list[_PendingWrite] = []
        try:
            call = self._queue.get(timeout=ROOM_SECONDS if self.trouble else None)
            while call is not None:
                group.append(call)
                if len(group) == LARGEST_GROUP:
                    return group, False
                call = self._queue.get_nowait()
        except Empty:
            return group, False
        return group, True

    def _commit(self, group: Sequence[_PendingWrite]) -> tuple[list[_WriteResult], Commit | None]:
        """The result of each call, and whether watches have to be woken."""
        try:
            with self._engine.begin() as connection:
                transaction = Transaction.begin(connection, self._known)
                transaction.tells_of_objects = self.tells_of_objects
                outcomes = [_attempt(transaction, call) for call in group]
                news = transaction.finish(self._keep_changes, self._sign)
                if self.trouble:
                    connection.execute(_NO_CHANGE)
            transaction.committed()
        except BaseException as error:  # noqa: BLE001 - the callers' error, all of them are told
            failure = failed("writing", error)
            self._note(failure)
            return [_WriteResult(call.future, None, failure) for call in group], None
        self._note(None)
        return outcomes, news

    def _note(self, failure: Exception | None) -> None:
        """Say in the log when the storage is full, and when it has room again."""
        if failure is not None and not isinstance(failure, StorageFull):
            log.error("a commit failed: %s", failure, exc_info=failure.__cause__)
            return
        if bool(self.trouble) != (failure is not None):
            if failure is None:
                log.warning("the ledger can be written to again")
            else:
                log.error("%s", failure)
        self.trouble = "" if failure is None else str(failure)

    def _deliver(self, outcomes: Iterable[_WriteResult], news: Commit | None) -> None:
        if news is not None:
            self.recent.add(news)
            self._notifier.announce()
        for future, result, error in outcomes:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


def _attempt(transaction: Transaction, call: _PendingWrite) -> _WriteResult:
    mark = transaction.mark()
    transaction.actor = call.actor
    transaction.connection.exec_driver_sql("SAVEPOINT one_call")
    try:
        result, error = call.write(transaction), None
    except Exception as raised:
        if is_full(raised):  # SQLite has taken back the whole transaction then
            raise
        # Fails in its turn when the connection is lost, which is then everybody's error.
        transaction.connection.exec_driver_sql("ROLLBACK TO SAVEPOINT one_call")
        transaction.rewind(mark)
        result, error = None, _refusal(raised)
    transaction.connection.exec_driver_sql("RELEASE SAVEPOINT one_call")
    return _WriteResult(call.future, result, error)


def _refusal(error: Exception) -> Exception:
    """A value that the database cannot hold is the caller's mistake, the same on every database."""
    if isinstance(error, DataError | OverflowError):
        reason = error.orig if isinstance(error, DataError) else error
        refusal = InvalidArgument("a value", str(reason), "something the database can hold")
        refusal.__cause__ = error
        return refusal
    if isinstance(error, SQLAlchemyError | StopIteration):  # a future cannot carry the latter
        return failed("writing", error)
    return error
