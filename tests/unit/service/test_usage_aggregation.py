"""Finished work is summed up a little at a time, and rests in between."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from carrel_scheduler.ledger.errors import LedgerUnavailable
from carrel_scheduler.service.usage_aggregation import (
    AT_ONCE,
    PAUSE_SECONDS,
    REST,
    UsageAggregation,
)


class SlowLedger:
    """Has so many transitions that were not aggregated; each time takes two seconds."""

    def __init__(self, left: int) -> None:
        self.left, self.now = left, 100.0

    async def aggregate_usage(self, most: int) -> int:
        self.now += 2.0
        found = min(most, self.left)
        self.left -= found
        return found


def aggregation(ledger: Any) -> UsageAggregation:
    return UsageAggregation(ledger, lambda: ledger.now)


async def test_while_more_is_left_pauses_are_in_proportion_to_the_work() -> None:
    ledger = SlowLedger(AT_ONCE + 7)
    one = aggregation(ledger)
    assert await one.once() == REST * 2.0
    assert ledger.left == 7
    assert await one.once() == PAUSE_SECONDS
    assert ledger.left == 0


async def test_a_ledger_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    rests: list[float] = []

    async def fails(most: int) -> int:
        asked.append(most)
        raise LedgerUnavailable("the disk is full")

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr("carrel_scheduler.periodic.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await aggregation(SimpleNamespace(aggregate_usage=fails, now=0.0)).run()
    assert asked == [AT_ONCE] * 3
    assert rests == [PAUSE_SECONDS] * 3
