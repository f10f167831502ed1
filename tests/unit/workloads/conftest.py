"""A desk for every test: the ledger is a real SQLite file."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carrel_scheduler.ledger.open import open_ledger
from unit.workloads.desk import Desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A scheduler with 4 GPUs and no projects."""
    numbers = itertools.count(1)
    ledger = await open_ledger(
        f"sqlite:///{tmp_path}/carrel.sqlite",
        clock=lambda: 1_000_000.0,
        ids=lambda: f"id{next(numbers)}",
    )
    desk = Desk(ledger, tmp_path)
    await desk.recover()
    yield desk
    await desk.loop.actor.close()
    await ledger.close()
