"""Workers of a real scheduler: short trials in processes that stay, and maps."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from carrel.comparing import runs_of
from carrel.results import NoResult
from contract.experiments.running import VISION, Lab, running

pytestmark = pytest.mark.timeout(1500)

SCRIPT = """
import os, carrel
trial = carrel.trial()
print("process", os.getppid(), "trial", trial.number)
if trial.number == 3:
    raise ValueError("boom")
if trial.number == 5:
    os.kill(os.getpid(), 9)
trial.report(float(trial["x"]), step=1)
"""


async def test_a_sweep_by_workers_and_a_map(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=2) as lab:
        await lab.project(VISION, gpus=2)
        space = {"x": {"type": "float", "low": 0.0, "high": 1.0}}
        facts = {"parameters": space, "completions": 12, "parallelism": 2, "trial_process": "warm"}
        await lab.sweep(SCRIPT, facts)
        done = await lab.until_at_rest()
        counts = done.status.experiment
        assert counts is not None
        assert (done.status.phase, counts.completed, counts.failed) == ("succeeded", 10, 2)
        rows = await lab.rows()
        assert all(row.value == row.parameters["x"] for row in rows if row.state == "completed")
        run = (await runs_of(lab.client, [(VISION, "sweep")], 0.0))[0]
        assert run.metrics == rows[0].metrics == {"objective": rows[0].value}
        assert {row.workload for row in rows} <= {"sweep-w0", "sweep-w1"}
        assert rows[3].error.startswith("ValueError: boom")
        assert rows[5].error.startswith("Its process was killed by signal 9 (SIGKILL).")
        logs = [await lab.client.trial_log(VISION, "sweep", row.number) for row in rows]
        assert [log.split()[-1] for log in logs[6:]] == [str(number) for number in range(6, 12)]
        assert len({log.split()[1] for log in logs}) <= 2  # a parent for each worker
        await _map(lab)


async def _map(lab: Lab) -> None:
    def call(number: int) -> tuple[int, str]:
        if number == 7:
            os._exit(9)
        return number * 2, os.environ["CARREL_WORKLOAD"]

    found: list[Any] = await lab.client.map(
        call, range(300), project=VISION, name="twice", gpus=1, workers=2, progress=False,
        memory_bytes=1 << 28, return_exceptions=True,
    )  # fmt: skip
    missing = found.pop(7)
    assert isinstance(missing, NoResult)
    assert "exit code 9" in str(missing)
    assert [value for value, _ in found] == [2 * number for number in range(300) if number != 7]
    assert {name for _, name in found} <= {"twice-w0", "twice-w1"}
    kept = await lab.client.get_workload(VISION, "twice")
    assert (kept.status.phase, kept.status.reason and kept.status.reason.token) == (
        "failed",
        "ItemsFailed",
    )
    few = await lab.client.map(call, [1, 2], project=VISION, gpus=1, progress=False)
    assert [value for value, _ in few] == [2, 4]
    async with asyncio.timeout(60):  # what succeeded is removed
        while len(await lab.client.list_workloads(VISION, kind="experiment")) > 2:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.1)
