"""A state folder whose tasks are all ended after the test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.engine.local_engines import LocalEngines


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[LocalEngines]:
    """Engines over one state folder below a folder that is closed to everybody else."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    opener = LocalEngines(closed / "state")
    yield opener
    await opener.clean()
