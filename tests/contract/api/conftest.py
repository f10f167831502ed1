"""The furnished API, fresh for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.api.service import Desk, running


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with running(tmp_path) as found:
        yield found
