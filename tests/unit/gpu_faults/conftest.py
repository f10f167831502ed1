"""A scheduler with faulty GPUs for every test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from unit.gpu_faults.story import COUNT, FaultyHarness
from unit.workloads.conftest import empty_ledger, opened

__all__ = ["empty_ledger"]


@pytest.fixture
async def harness(empty_ledger: Path, tmp_path: Path) -> AsyncIterator[FaultyHarness]:
    async with opened(empty_ledger, tmp_path, COUNT, FaultyHarness) as harness:
        assert isinstance(harness, FaultyHarness)
        yield harness
