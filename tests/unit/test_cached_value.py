"""Cached values: read once for some time, and what was overtaken by a change is not kept."""

import asyncio

import pytest

from carrel_scheduler.cached_value import CachedValue


class Source:
    """What is read, and a gate that holds a reading up."""

    def __init__(self) -> None:
        self.value, self.now, self.reads = 1, 100.0, 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.cached = CachedValue(self.read, 2.0, lambda: self.now)

    async def read(self) -> int:
        self.reads += 1
        found = self.value
        await self.gate.wait()
        return found


async def test_it_is_read_again_after_its_time() -> None:
    source = Source()
    assert [await source.cached.get() for _ in range(3)] == [1, 1, 1]
    source.value, source.now = 2, 101.9
    assert (await source.cached.get(), source.reads) == (1, 1)
    source.now = 102.0
    assert (await source.cached.get(), source.reads) == (2, 2)


async def test_a_change_counts_for_whoever_asks_after_it() -> None:
    source = Source()
    source.gate.clear()
    slow = asyncio.create_task(source.cached.get())
    await asyncio.sleep(0)
    source.value = 2
    source.cached.invalidate()
    source.gate.set()
    assert await source.cached.get() == 2
    assert await slow == 1
    assert (await source.cached.get(), source.reads) == (2, 2)


async def test_what_cannot_be_read_is_asked_for_again() -> None:
    failures = [OSError("down")]

    async def read() -> int:
        if failures:
            raise failures.pop()
        return 1

    cached = CachedValue(read, 2.0, lambda: 0.0)
    with pytest.raises(OSError, match="down"):
        await cached.get()
    assert await cached.get() == 1
