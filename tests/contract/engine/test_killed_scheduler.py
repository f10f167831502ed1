"""A scheduler may be killed at any instant: no task runs twice, and what is listed is the truth."""

import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path

from carrel_scheduler.engines.contract import TaskPhase, TaskStatus
from carrel_scheduler.engines.local.task_state import Lock
from contract.engine.local_engines import TIMEOUT_SECONDS, LocalEngines, marked

FIRST = 5  # as many as the child says of
KILLS = 32
LONGEST_LIFE = 0.2


async def live_and_die(engines: LocalEngines, number: int, life: float | None) -> float:
    """A scheduler's life: until it starts tasks, then ``life`` seconds, or until it started some.

    Returns how long it lived.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("starting_child.py")),
        str(engines.root),
        engines.node,
        str(number),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await child.stdout.readline() == b"ready\n"
        began = time.monotonic()
        if life is None:
            said = [await child.stdout.readline() for _ in range(FIRST)]
            assert said == [b"started\n"] * FIRST
        else:
            await asyncio.sleep(life)
    lived = time.monotonic() - began
    child.kill()
    await child.communicate()
    return lived


async def all_ended(engines: LocalEngines) -> list[TaskStatus]:
    """A new engine's list once everything is over."""
    engine = await engines.open()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        stream = engine.watch()
        while any(status.phase is not TaskPhase.ENDED for status in await engine.list()):
            await anext(stream)
    return list(await engine.list())


async def test_no_task_runs_twice_and_the_list_is_true(engines: LocalEngines) -> None:
    chance = random.Random(20261121)
    # Long enough for some starts also on a slow machine.
    longest = max(LONGEST_LIFE, await live_and_die(engines, 0, None))
    for number in range(1, KILLS):
        await live_and_die(engines, number, chance.uniform(0, longest))
        engine = await engines.open()
        for status in await engine.list():
            folder = engines.folder(status.id.workload_uid, status.id.index)
            if status.phase is not TaskPhase.ENDED:
                continue
            assert status.lost or (folder / "exit.json").exists()
            assert marked(folder) == []
        await engine.close()
    statuses = await all_ended(engines)

    runs: Counter[str] = Counter()
    for file in (engines.root / "checkpoints").glob("*/runs"):
        runs.update(file.read_text().split())
    listed = {str(status.id): status for status in statuses}
    assert len(listed) >= KILLS
    assert set(runs) <= set(listed), "a task ran that no record tells of"
    assert set(runs.values()) <= {1}, "a task ran twice"
    for task, status in listed.items():
        assert not Lock.held(engines.folder(status.id.workload_uid, status.id.index))
        if status.lost:
            assert status.pid != 0 or task not in runs, "said to have never run, but it did"
        elif status.exit_code == 0:
            assert runs[task] == 1, "said to have succeeded, but it did not run"
