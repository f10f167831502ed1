"""Logs of many tasks as one: in order of time, behind names, whole lines only."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from carrel_scheduler.api.services.merged_logs import merged
from carrel_scheduler.engines.contract import UnknownTask


def at(second: int, text: str) -> bytes:
    return f"2026-01-01T00:00:{second:02d}.000000Z {text}\n".encode()


async def log(*pieces: bytes, last: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    for number, piece in enumerate(pieces, start=1):
        if last is not None and number == len(pieces):
            await last.wait()
        yield piece


async def missing(*pieces: bytes) -> AsyncIterator[bytes]:
    if not pieces:
        raise UnknownTask("no log")
    for piece in pieces:
        yield piece


async def read(**logs: AsyncIterator[bytes]) -> str:
    pieces = merged(logs, timestamps=False, follow=False)
    return b"".join([piece async for piece in pieces]).decode()


async def test_lines_stand_in_order_of_time_behind_names() -> None:
    first = log(at(1, "a") + at(4, "d")[:30], at(4, "d")[30:])
    second = log(at(2, "b") + at(3, "c"), at(5, "e")[:-1])
    text = await read(first=first, second=second)
    assert text == "[first] a\n[second] b\n[second] c\n[first] d\n[second] e\n"


async def test_a_task_without_a_log_is_left_out_and_all_without_are_refused() -> None:
    assert await read(a=log(at(1, "x")), b=missing()) == "[a] x\n"
    with pytest.raises(UnknownTask):
        await read(a=missing(), b=missing())


async def test_following_waits_for_nobody_who_is_silent_and_keeps_times_when_asked() -> None:
    says = asyncio.Event()
    silent = log(at(9, "late"), last=says)
    pieces = merged({"a": log(at(1, "x"), at(2, "y")), "b": silent}, timestamps=True, follow=True)
    assert await anext(pieces) == b"[a] " + at(1, "x")
    assert await anext(pieces) == b"[a] " + at(2, "y")
    says.set()
    assert await anext(pieces) == b"[b] " + at(9, "late")
    assert [piece async for piece in pieces] == []


async def test_logs_that_begin_later_are_taken_in_until_there_will_be_no_more() -> None:
    begins, ends = asyncio.Event(), asyncio.Event()

    async def later() -> AsyncGenerator[dict[str, AsyncIterator[bytes]], None]:
        await begins.wait()
        yield {"b": log(at(2, "y"))}
        await ends.wait()

    pieces = merged({"a": log(at(1, "x"))}, timestamps=False, follow=True, later=later())
    assert await anext(pieces) == b"[a] x\n"
    begins.set()
    assert await anext(pieces) == b"[b] y\n"
    ends.set()
    assert [piece async for piece in pieces] == []


async def test_a_listener_may_leave_while_nothing_has_begun() -> None:
    async def never() -> AsyncGenerator[dict[str, AsyncIterator[bytes]], None]:
        await asyncio.Event().wait()
        yield {}

    pieces = merged({}, timestamps=False, follow=True, later=never())
    coming = asyncio.create_task(anext(pieces))
    await asyncio.sleep(0)
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)
    await pieces.aclose()
    assert len(asyncio.all_tasks()) == 1


async def test_who_stops_listening_leaves_nothing_behind() -> None:
    closed = []

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield at(1, "x")
            await asyncio.Event().wait()
        finally:
            closed.append("yes")

    pieces = merged({"a": endless()}, timestamps=False, follow=True)
    await anext(pieces)
    await pieces.aclose()
    assert closed == ["yes"]
    assert len(asyncio.all_tasks()) == 1
