"""Schedulers that are killed after every step, between the record and what follows from it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from unit.workloads.conftest import empty_ledger, opened
from unit.workloads.harness import SchedulerHarness


class KilledHarness(SchedulerHarness):
    """A scheduler that dies in every pass after recording, before it acts."""

    _dies = True

    @override
    async def settle(self) -> None:
        while self._dies and not self.loop.quiet:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(self.loop.executor, "act", _lost)
                await self.loop.reconcile()
            await self.recover()
        await super().settle()

    @override
    async def recover(self) -> None:
        died, self._dies = self._dies, False
        await super().recover()
        self._dies = died


async def _lost(*_: Any) -> None:
    """The orders of a turn that nobody carries out."""


__all__ = ["empty_ledger"]


@pytest.fixture
async def harness(empty_ledger: Path, tmp_path: Path) -> AsyncIterator[SchedulerHarness]:
    async with opened(empty_ledger, tmp_path, 4, KilledHarness) as harness:
        yield harness


@pytest.fixture
async def harness_2(empty_ledger: Path, tmp_path: Path) -> AsyncIterator[SchedulerHarness]:
    async with opened(empty_ledger, tmp_path, 2, KilledHarness) as harness:
        yield harness
