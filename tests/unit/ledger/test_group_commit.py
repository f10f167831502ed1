"""Group commit: who shares a commit, who hears when, who fails with whom."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from carrel_scheduler.ledger.database import Database, database_of
from carrel_scheduler.ledger.errors import LedgerClosed, LedgerUnavailable, StorageFull
from carrel_scheduler.ledger.group_commit import LARGEST_GROUP, GroupCommit, Transaction
from carrel_scheduler.ledger.migrations.migrate import upgrade
from carrel_scheduler.ledger.rows.small import read_settings, write_setting
from carrel_scheduler.ledger.watches.watch import Notifier


class Disk:
    """Counts commits, and can hold them up or let them fail.

    ``busy`` is set once a commit is held up.
    """

    def __init__(self, database: Database) -> None:
        self.commits = 0
        self.free = threading.Event()
        self.free.set()
        self.busy = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.failure: BaseException | None = None
        event.listen(database.writer, "commit", self._commit)

    def _commit(self, _connection: Any) -> None:
        self._loop.call_soon_threadsafe(self.busy.set)
        assert self.free.wait(60)
        if self.failure is not None:
            raise self.failure
        self.commits += 1


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = database_of(f"sqlite:///{tmp_path / 'carrel.sqlite'}")
    upgrade(database)
    yield database
    database.dispose()


@pytest.fixture
async def disk(database: Database) -> Disk:
    return Disk(database)


@pytest.fixture
def notifier() -> Notifier:
    return Notifier()


@pytest.fixture
async def writer(database: Database, disk: Disk, notifier: Notifier) -> AsyncIterator[GroupCommit]:
    writer = GroupCommit(database.writer, notifier, 100, lambda _: "")
    yield writer
    disk.free.set()
    await writer.close()


def setting(key: str) -> Callable[[Transaction], str]:
    """A write that says what it wrote."""

    def write(transaction: Transaction) -> str:
        write_setting(transaction.connection, key, "true")
        return key

    return write


def stored(database: Database) -> set[str]:
    with database.reader.begin() as connection:
        return set(read_settings(connection))


async def while_busy(
    writer: GroupCommit, disk: Disk, writes: list[Callable[[Transaction], Any]]
) -> tuple["asyncio.Future[Any]", list["asyncio.Future[Any]"]]:
    """A first call whose commit is held up, and others that arrive meanwhile."""
    disk.free.clear()
    first = asyncio.ensure_future(writer.run(setting("first")))
    await disk.busy.wait()
    return first, [asyncio.ensure_future(writer.run(write)) for write in writes]


async def test_calls_that_arrive_together_share_a_commit(
    writer: GroupCommit, disk: Disk, database: Database
) -> None:
    keys = [f"key-{number}" for number in range(LARGEST_GROUP)]
    first, others = await while_busy(writer, disk, [setting(key) for key in keys])
    await asyncio.sleep(0.01)
    disk.free.set()
    assert await asyncio.gather(first, *others) == ["first", *keys]
    assert disk.commits == 2
    assert stored(database) == {"first", *keys}


async def test_nobody_hears_before_the_commit(writer: GroupCommit, disk: Disk) -> None:
    first, others = await while_busy(writer, disk, [setting("other")])
    await asyncio.sleep(0.05)
    assert not first.done()
    assert not others[0].done()
    disk.free.set()
    assert await asyncio.gather(first, *others) == ["first", "other"]


async def test_a_failing_call_fails_alone(
    writer: GroupCommit, disk: Disk, database: Database
) -> None:
    def fail(transaction: Transaction) -> None:
        write_setting(transaction.connection, "half", "true")
        transaction.next_version()
        raise ValueError("on purpose")

    _, others = await while_busy(writer, disk, [setting("a"), fail, setting("b")])
    disk.free.set()
    results = await asyncio.gather(*others, return_exceptions=True)
    assert results[::2] == ["a", "b"]
    assert isinstance(results[1], ValueError)
    assert stored(database) == {"first", "a", "b"}


async def test_a_failing_commit_fails_its_whole_group(
    writer: GroupCommit, disk: Disk, database: Database
) -> None:
    first, others = await while_busy(writer, disk, [setting("a"), setting("b")])
    disk.failure = OperationalError("COMMIT", None, Exception("disk on fire"))
    disk.free.set()
    results = await asyncio.gather(first, *others, return_exceptions=True)
    assert {type(result) for result in results} == {LedgerUnavailable}
    disk.failure = None
    assert await writer.run(setting("after")) == "after"
    assert stored(database) == {"after"}


@pytest.mark.parametrize("failure", [MemoryError(), RuntimeError("?"), SystemExit(3)])
async def test_whatever_fails_a_commit_writes_go_on(
    writer: GroupCommit, disk: Disk, database: Database, failure: BaseException
) -> None:
    disk.failure = failure
    with pytest.raises(LedgerUnavailable):
        await writer.run(setting("lost"))
    disk.failure = None
    assert await writer.run(setting("after")) == "after"
    assert stored(database) == {"after"}


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3)])
async def test_whatever_a_call_raises_everybody_hears(
    writer: GroupCommit, disk: Disk, error: BaseException
) -> None:
    def fail(_transaction: Transaction) -> None:
        raise error

    first, others = await while_busy(writer, disk, [setting("a"), fail, setting("b")])
    disk.free.set()
    outcomes = await asyncio.gather(first, *others, return_exceptions=True)
    assert isinstance(outcomes[2], LedgerUnavailable)
    assert await writer.run(setting("after")) == "after"


async def test_a_full_storage_refuses_or_makes_wait_until_there_is_room(
    writer: GroupCommit, disk: Disk, database: Database
) -> None:
    disk.failure = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StorageFull):
        await writer.run(setting("refused"))
    assert "No space left" in writer.trouble
    waiting = asyncio.ensure_future(writer.run(setting("waits"), waits=True))
    with pytest.raises(StorageFull):
        await writer.run(setting("refused"))
    assert not waiting.done()
    disk.failure = None
    assert await waiting == "waits"
    assert writer.trouble == ""
    assert stored(database) == {"waits"}


async def test_room_is_noticed_although_nobody_writes(writer: GroupCommit, disk: Disk) -> None:
    disk.failure = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StorageFull):
        await writer.run(setting("refused"))
    disk.failure = None
    async with asyncio.timeout(60):
        while writer.trouble:  # noqa: ASYNC110 - set in another thread
            await asyncio.sleep(0.01)


async def test_closing_ends_waiting_for_room(writer: GroupCommit, disk: Disk) -> None:
    disk.failure = OSError(errno.ENOSPC, "No space left on device")
    waiting = asyncio.ensure_future(writer.run(setting("waits"), waits=True))
    with pytest.raises(StorageFull):
        await writer.run(setting("refused"))
    await writer.close()
    with pytest.raises(LedgerClosed):
        await waiting


async def test_versions_are_given_once(writer: GroupCommit) -> None:
    calls = (writer.run(lambda transaction: transaction.next_version()) for _ in range(100))
    assert sorted(await asyncio.gather(*calls)) == list(range(1, 101))


async def test_watches_hear_of_changes_only_and_before_the_caller(
    writer: GroupCommit, notifier: Notifier
) -> None:
    def change(transaction: Transaction) -> None:
        version = transaction.next_version()
        columns = dict.fromkeys(("kind", "type", "uid", "meta", "status"), "")
        transaction.add_change({**columns, "version": version, "generation": 1})

    await writer.run(setting("quiet"))
    assert notifier.news == 0
    for turn in range(1, 4):
        await writer.run(change)
        assert notifier.news == turn


async def test_a_closed_writer_refuses(writer: GroupCommit, database: Database) -> None:
    asked = [asyncio.ensure_future(writer.run(setting(f"key-{n}"))) for n in range(5)]
    await asyncio.sleep(0)
    await writer.close()
    await asyncio.gather(*asked)
    assert len(stored(database)) == 5
    with pytest.raises(LedgerClosed):
        await writer.run(setting("late"))
