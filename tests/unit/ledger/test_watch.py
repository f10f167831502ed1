"""One watch over a list of changes that stands for the database."""

import asyncio

import pytest

from carrel_scheduler.ledger.store import Change, ChangeType, Expired
from carrel_scheduler.ledger.watches.watch import Batch, Notifier, Watch
from carrel_schema.objects import Meta, Workload, WorkloadSpec

AT_ONCE = 3
FOREVER = 3600.0


async def settled() -> None:
    """Everybody has done what he can; how fast the machine is does not matter."""
    for _ in range(50):
        await asyncio.sleep(0)


class Log:
    """Changes by version; reads can be held up."""

    def __init__(self) -> None:
        self.notifier = Notifier()
        self.changes: list[Change[Workload]] = []
        self.version = 0
        self.dropped_through = 0
        self.reads = 0
        self.free = asyncio.Event()
        self.free.set()

    def write(self, count: int = 1, *, other_kind: bool = False, publish: bool = True) -> None:
        for _ in range(count):
            self.version += 1
            if not other_kind:
                obj = Workload(meta=Meta(name=str(self.version)), spec=WorkloadSpec())
                self.changes.append(Change(ChangeType.ADDED, self.version, obj))
        if publish:
            self.notifier.announce()

    async def read(self, cursor: int) -> Batch[Workload]:
        self.reads += 1
        if cursor < self.dropped_through:
            raise Expired("gone")
        later = [change for change in self.changes if change.version > cursor][:AT_ONCE]
        through = later[-1].version if len(later) == AT_ONCE else self.version
        await self.free.wait()
        return Batch(later, through)

    def watch(self, version: int = 0, poll_seconds: float = FOREVER) -> Watch[Workload]:
        return Watch(self.read, self.notifier, version, poll_seconds)


async def versions(watch: Watch[Workload], count: int) -> list[int]:
    async with asyncio.timeout(60):
        return [(await anext(watch)).version for _ in range(count)]


async def test_reads_on_until_all_is_delivered() -> None:
    log = Log()
    log.write(8)
    assert await versions(log.watch(), 8) == list(range(1, 9))
    assert await versions(log.watch(6), 2) == [7, 8]


async def test_sleeps_until_told() -> None:
    log = Log()
    watch = log.watch()
    waiting = asyncio.ensure_future(versions(watch, 2))
    await settled()
    assert log.reads == 1
    log.write()
    await settled()
    log.write()
    assert await waiting == [1, 2]


async def test_a_write_during_a_read_is_not_slept_through() -> None:
    log = Log()
    log.free.clear()
    waiting = asyncio.ensure_future(versions(log.watch(), 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    log.write()
    log.free.set()
    assert await waiting == [1]


async def test_without_news_it_looks_for_itself() -> None:
    log = Log()
    waiting = asyncio.ensure_future(versions(log.watch(poll_seconds=0.01), 1))
    await settled()
    log.write(publish=False)
    assert await waiting == [1]


async def test_cancelling_at_any_await_loses_nothing() -> None:
    log = Log()
    log.write(5)
    watch = log.watch()
    log.free.clear()
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    log.free.set()
    assert await versions(watch, 5) == [1, 2, 3, 4, 5]
    waiting = asyncio.ensure_future(anext(watch))
    await settled()
    waiting.cancel()
    await asyncio.wait([waiting])
    log.write(2)
    assert await versions(watch, 2) == [6, 7]
    assert not log.notifier._waiters


async def test_follows_the_version_through_other_kinds() -> None:
    log = Log()
    watch = log.watch()
    waiting = asyncio.ensure_future(versions(watch, 1))
    for _ in range(3):
        log.write(5, other_kind=True)
        await settled()
    log.dropped_through = 15
    log.write()
    assert await waiting == [16]


async def test_a_false_alarm_costs_one_read() -> None:
    log = Log()
    waiting = asyncio.ensure_future(versions(log.watch(), 1))
    for alarms in range(4):
        await settled()
        assert log.reads == 1 + alarms
        log.notifier.announce()
    log.write()
    assert await waiting == [1]


async def test_expires() -> None:
    log = Log()
    log.dropped_through = 5
    with pytest.raises(Expired):
        await versions(log.watch(4), 1)


async def test_ends_on_closing_after_what_was_read() -> None:
    log = Log()
    log.write(2)
    watch = log.watch()
    assert await versions(watch, 1) == [1]
    log.notifier.close()
    assert [change.version async for change in watch] == [2]
    waiting = asyncio.ensure_future(anext(log.watch(), None))
    assert await waiting is None


async def test_ends_when_told_to() -> None:
    log = Log()
    log.write(2)
    watch = log.watch()
    assert await versions(watch, 1) == [1]
    await watch.aclose()
    assert [change async for change in watch] == []
