"""A scheduler that is killed in the middle of a sweep: nothing lost, nothing doubled."""

from pathlib import Path

import pytest

from contract.experiments.running import VISION, running

pytestmark = pytest.mark.timeout(1500)

# Leaves a line for each time that it runs.
SCRIPT = """
import os, pathlib, time, uuid, carrel
number = os.environ["CARREL_TRIAL"]
(pathlib.Path(os.environ["SHARED"]) / f"{number}.{uuid.uuid4().hex}").touch()
time.sleep(0.3)
carrel.trial().result(float(os.environ["CARREL_PARAM_X"]))
"""
EXPERIMENT = {
    "parameters": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
    "completions": 12,
    "parallelism": 3,
    "seed": 5,
}


async def test_a_sweep_outlives_kills_of_the_scheduler(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=3) as lab:
        await lab.project(VISION, gpus=3)
        await lab.sweep(SCRIPT, EXPERIMENT)
        for begun in (1, 5, 9):
            await lab.until_trials(
                lambda _, begun=begun: len(list(lab.folder.iterdir())) >= begun  # type: ignore[misc]
            )
            await lab.restart()
        done = await lab.until_at_rest()
        assert done.status.phase == "succeeded"
        rows = await lab.rows()
        assert [one.state for one in rows] == ["completed"] * 12
        assert len({one.parameters["x"] for one in rows}) == 12
        assert all(one.value == one.parameters["x"] for one in rows)
        runs = sorted(int(one.name.partition(".")[0]) for one in lab.folder.iterdir())
        assert runs == list(range(12))
