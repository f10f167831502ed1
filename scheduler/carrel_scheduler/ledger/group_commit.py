"""One thread that writes: calls that arrive while the disk is busy share the next commit.

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
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Engine, update
from sqlalchemy.exc import DataError, SQLAlchemyError

from carrel_scheduler.ledger.audit.actor import Actor, current
from carrel_scheduler.ledger.audit.rows import Sign
from carrel_scheduler.ledger.errors import (
    InvalidArgument,
    LedgerClosed,
    StorageFull,
    failed,
    is_full,
)
from carrel_scheduler.ledger.rows.tables import store_state
from carrel_scheduler.ledger.transaction import Transaction
from carrel_scheduler.ledger.watches.recent_commits import Commit, Identities, RecentCommits
from carrel_scheduler.ledger.watches.watch import Notifier

log = logging.getLogger(__name__)
T = TypeVar("T")
LARGEST_GROUP: Final = 256
ROOM_SECONDS: Final = 0.5
"""How often a full storage is tried again."""
_NO_CHANGE: Final = update(store_state).values(version=store_state.c.version)


class _Call(NamedTuple):
    write: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    actor: Actor | None


class _Outcome(NamedTuple):
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
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
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
            self._queue.put(_Call(write, future, current()))
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

    def _next_group(self) -> tuple[list[_Call], bool]:
        """Wait for a call, then take along all that have arrived; true when it is the last.

        While the storage is full the group may be empty.
        """
        group: list[_Call] = []
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

    def _commit(self, group: Sequence[_Call]) -> tuple[list[_Outcome], Commit | None]:
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
            return [_Outcome(call.future, None, failure) for call in group], None
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

    def _deliver(self, outcomes: Iterable[_Outcome], news: Commit | None) -> None:
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


def _attempt(transaction: Transaction, call: _Call) -> _Outcome:
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
    return _Outcome(call.future, result, error)


def _refusal(error: Exception) -> Exception:
    """What the database cannot hold is the caller's mistake, the same one on every database."""
    if isinstance(error, DataError | OverflowError):
        reason = error.orig if isinstance(error, DataError) else error
        refusal = InvalidArgument("a value", str(reason), "something the database can hold")
        refusal.__cause__ = error
        return refusal
    if isinstance(error, SQLAlchemyError | StopIteration):  # a future cannot carry the latter
        return failed("writing", error)
    return error
