"""The furnished API, fresh for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.api.service import ApiHarness, running


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ApiHarness]:
    async with running(tmp_path) as found:
        yield found
