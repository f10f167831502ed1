"""Periodic work: an error is logged and the next turn comes; what is returned is the pause."""

import asyncio
import logging

import pytest

from carrel_scheduler.periodic import run_periodically


async def test_an_error_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []
    turns = iter([None, RuntimeError("broken"), 5.0])

    async def once() -> float | None:
        turn = next(turns)
        if isinstance(turn, RuntimeError):
            raise turn
        return turn

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr("carrel_scheduler.periodic.asyncio.sleep", sleep)
    log = logging.getLogger("periodic")
    with pytest.raises(asyncio.CancelledError):
        await run_periodically(once, 60.0, log, "no sample was taken")
    assert pauses == [60.0, 60.0, 5.0]
    assert [one.getMessage() for one in caplog.records] == ["no sample was taken"]
