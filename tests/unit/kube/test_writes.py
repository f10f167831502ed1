"""Many writes at once, within bounds."""

import asyncio
from functools import partial

import pytest

from carrel_scheduler.kube.errors import Conflict
from carrel_scheduler.kube.writes import Writer


async def test_never_more_at_once_than_allowed_and_in_order() -> None:
    begun: list[int] = []
    at_once = most = 0
    go = asyncio.Event()

    async def write(number: int) -> int:
        nonlocal at_once, most
        begun.append(number)
        at_once += 1
        most = max(most, at_once)
        await go.wait()
        at_once -= 1
        return number

    async with Writer(3) as writer:
        results = [writer.submit(partial(write, number)) for number in range(10)]
        assert writer.unfinished >= 10
        await asyncio.sleep(0)
        assert begun == [0, 1, 2]
        go.set()
        assert await asyncio.gather(*results) == list(range(10))
        assert (begun, most) == (list(range(10)), 3)
        await asyncio.sleep(0)
        assert writer.unfinished == 0


async def test_each_error_is_for_who_asked() -> None:
    async def refuse() -> None:
        raise Conflict(409, "Conflict", "no")

    async def work() -> str:
        return "done"

    async with Writer(1) as writer:
        refused, done = writer.submit(refuse), writer.submit(work)
        with pytest.raises(Conflict):
            await refused
        assert await done == "done"


async def test_closing_takes_back_what_has_not_begun() -> None:
    begun = []

    async def hang(number: int) -> None:
        begun.append(number)
        await asyncio.Event().wait()

    writer = Writer(1)
    results = [writer.submit(partial(hang, number)) for number in range(2)]
    await asyncio.sleep(0)
    await writer.close()
    assert begun == [0]
    assert all(result.cancelled() for result in results)
    with pytest.raises(RuntimeError, match="closed"):
        writer.submit(lambda: hang(3))


async def test_what_was_taken_back_does_not_begin() -> None:
    begun = []

    async def work(number: int) -> None:
        begun.append(number)

    async with Writer(1) as writer:
        results = [writer.submit(partial(work, number)) for number in range(3)]
        results[1].cancel()
        await results[2]
    assert begun == [0, 2]
