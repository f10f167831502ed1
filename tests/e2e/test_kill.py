"""SIGKILLs of the scheduler at random instants under load; the benchmark has more of them."""

from pathlib import Path

import pytest

from benchmarks.forking import ForkServer
from benchmarks.kills import run

KILLS = 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_nothing_is_lost_and_nothing_runs_twice(tmp_path: Path) -> None:
    with ForkServer("benchmarks.forked_schedulers") as fork_server:
        verdict = await run(tmp_path, KILLS, fork_server)
    assert verdict.jobs > KILLS / 2
    assert verdict.lost == []
    assert verdict.unfinished == []
    assert verdict.twice == []
