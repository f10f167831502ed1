"""Faults of the machine under load: full disk, no watches, no memory, clock jumps, standstills.

Each once; the benchmark has more rounds.
"""

from pathlib import Path

import pytest

from benchmarks.faults import run
from benchmarks.forking import ForkServer


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(1800)
async def test_nothing_is_lost_and_nothing_runs_twice(tmp_path: Path) -> None:
    with ForkServer("benchmarks.faulty_schedulers") as fork_server:
        verdict, _ = await run(tmp_path, 1, fork_server)
    assert verdict.jobs > 20
    assert verdict.lost == []
    assert verdict.unfinished == []
    assert verdict.twice == []
