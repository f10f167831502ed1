"""A scheduler harness for every test: the ledger is a real SQLite file, made once and copied."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Ledger
from unit.workloads.harness import SchedulerHarness


async def ledger_in(file: Path) -> Ledger:
    numbers = itertools.count(1)
    return await open_ledger(
        f"sqlite:///{file}", clock=lambda: 1_000_000.0, ids=lambda: f"id{next(numbers)}"
    )


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a ledger that holds nothing."""
    file = tmp_path_factory.mktemp("ledger") / "empty.sqlite"

    async def make() -> None:
        await (await ledger_in(file)).close()

    asyncio.run(make())
    return file


@asynccontextmanager
async def opened(
    empty_ledger: Path, tmp_path: Path, gpus: int, kind: type[SchedulerHarness] = SchedulerHarness
) -> AsyncIterator[SchedulerHarness]:
    shutil.copy(empty_ledger, tmp_path / "carrel.sqlite")
    ledger = await ledger_in(tmp_path / "carrel.sqlite")
    harness = kind(ledger, tmp_path, gpus)
    await harness.recover()
    yield harness
    await harness.loop.executor.close()
    await ledger.close()


@pytest.fixture
async def harness(empty_ledger: Path, tmp_path: Path) -> AsyncIterator[SchedulerHarness]:
    """A scheduler with 4 GPUs and no projects."""
    async with opened(empty_ledger, tmp_path, 4) as harness:
        yield harness


@pytest.fixture
async def harness_2(empty_ledger: Path, tmp_path: Path) -> AsyncIterator[SchedulerHarness]:
    """A scheduler with 2 GPUs and no projects."""
    async with opened(empty_ledger, tmp_path, 2) as harness:
        yield harness
