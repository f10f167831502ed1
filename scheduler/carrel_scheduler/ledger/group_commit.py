"""One thread that writes: calls that arrive while the disk is busy share the next commit.

Each call runs in a savepoint of its own inside the common transaction, in order of arrival. Its
caller hears of it only after the commit; a call that fails is rolled back alone. A caller that is
cancelled while its call waits does not take it back.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import DataError, SQLAlchemyError

from carrel_scheduler.ledger.errors import InvalidArgument, LedgerClosed, LedgerUnavailable
from carrel_scheduler.ledger.identities import Identities
from carrel_scheduler.ledger.news import Commit, RecentCommits
from carrel_scheduler.ledger.notifier import Notifier
from carrel_scheduler.ledger.transaction import Transaction

T = TypeVar("T")
LARGEST_GROUP: Final = 256


class _Call(NamedTuple):
    write: Callable[[Transaction], Any]
    future: asyncio.Future[Any]


class _Outcome(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: Exception | None


class GroupCommit:
    """The writer of one ledger; belongs to the event loop that it is made in.

    ``recent`` is what it committed lately.

    Args:
        engine: of one connection.
        notifier: told of commits that changed objects, before their callers hear.
        keep_changes: how many changes stay for watches.
    """

    def __init__(self, engine: Engine, notifier: Notifier, keep_changes: int) -> None:
        self._engine, self._notifier, self._keep_changes = engine, notifier, keep_changes
        self.recent, self._known = RecentCommits(), Identities()
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._closed = False
        # A daemon: what it has not committed was promised to nobody.
        self._thread = threading.Thread(target=self._serve, name="ledger-writer", daemon=True)
        self._thread.start()

    async def run(self, write: Callable[[Transaction], T]) -> T:
        """Run ``write`` in a transaction; returns when it is durable.

        Raises what ``write`` raised, ``LedgerUnavailable`` or ``LedgerClosed``.
        """
        if self._closed:
            raise LedgerClosed("the ledger was closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Call(write, future))
        return await future

    async def close(self) -> None:
        """Commit what was asked for, then end the thread."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        closing = False
        while not closing:
            group, closing = self._next_group()
            if group:
                outcomes, news = self._commit(group)
                self._loop.call_soon_threadsafe(self._deliver, outcomes, news)

    def _next_group(self) -> tuple[list[_Call], bool]:
        """Wait for a call, then take along all that have arrived; true when it is the last."""
        group: list[_Call] = []
        call = self._queue.get()
        try:
            while call is not None:
                group.append(call)
                if len(group) == LARGEST_GROUP:
                    return group, False
                call = self._queue.get_nowait()
        except Empty:
            return group, False
        return group, True

    def _commit(self, group: Iterable[_Call]) -> tuple[list[_Outcome], Commit | None]:
        """What became of each call, and whether there is something for watches."""
        try:
            with self._engine.begin() as connection:
                transaction = Transaction.begin(connection, self._known)
                outcomes = [_attempt(transaction, call) for call in group]
                news = transaction.finish(self._keep_changes)
        except SQLAlchemyError as error:
            failure = LedgerUnavailable(f"the database failed while writing: {error}")
            failure.__cause__ = error
            return [_Outcome(call.future, None, failure) for call in group], None
        transaction.committed()
        return outcomes, news

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
    transaction.connection.exec_driver_sql("SAVEPOINT one_call")
    try:
        result, error = call.write(transaction), None
    except Exception as raised:  # noqa: BLE001 - handed to the caller, whose error it is
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
    if isinstance(error, SQLAlchemyError):
        failure = LedgerUnavailable(f"the database refused: {error}")
        failure.__cause__ = error
        return failure
    return error
