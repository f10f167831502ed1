"""Twelve trials, three at once, through the loss of a GPU: every configuration once, none twice."""

from pathlib import Path

import pytest

from contract.experiments.running import SPEECH, VISION, most_at_once, running

pytestmark = pytest.mark.timeout(1500)

SCRIPT = """
import os, pathlib, sys, time
import carrel

width, depth = int(sys.argv[1]), sys.argv[2]
shared = pathlib.Path(os.environ["SHARED"])
print("tries", width, depth, flush=True)
(shared / f"begun-{os.environ['CARREL_TRIAL']}").touch()
while not (shared / "go").exists():
    time.sleep(0.05)
carrel.report(step=1, accuracy=width + len(depth) / 10)
"""
SPACE = {
    "width": {"type": "int", "low": 16, "high": 64, "step": 16},
    "depth": {"type": "categorical", "choices": ["a", "bb", "ccc"]},
}
EXPERIMENT = {
    "parameters": SPACE,
    "metric": "accuracy",
    "direction": "maximize",
    "sampler": "random",
    "completions": 12,
    "parallelism": 3,
    "seed": 7,
}
HOLD = "import time; time.sleep(600)"


async def test_a_sweep_goes_through_a_reclaim(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=3) as lab:
        await lab.project(VISION, gpus=2)
        await lab.project(SPEECH, gpus=1)
        await lab.sweep(SCRIPT, EXPERIMENT, "{width}", "{depth}")
        await lab.until_trials(lambda _: len(list(lab.folder.glob("begun-*"))) == 3)
        claim = {
            "name": "claim",
            "project": SPEECH,
            "command": ["python", "-c", HOLD],
            "gpus": 1,
        }
        await lab.client.create_workload(claim)
        taken = await lab.until(lambda one: one.status.phase == "running", "claim", SPEECH)
        await lab.until_trials(
            lambda trials: (
                sorted(one.status.phase for one in trials.values())
                == ["pending", "running", "running"]
            )
        )
        (evicted,) = (
            one for one in (await lab.workloads()).values() if one.status.phase == "pending"
        )
        assert evicted.status.preemptions == 1
        (lab.folder / "go").touch()
        done = await lab.until_at_rest()
        assert done.status.phase == "succeeded"
        table = await lab.trials()
        configurations = [(one.parameters["width"], one.parameters["depth"]) for one in table.items]
        assert len(configurations) == 12
        assert len(set(configurations)) == 12
        assert {one.state for one in table.items} == {"completed"}
        assert all(
            one.value == one.parameters["width"] + len(one.parameters["depth"]) / 10
            for one in table.items
        )
        best = done.status.experiment
        assert best is not None
        assert (best.best_value, best.best_parameters) == (64.3, {"width": 64, "depth": "ccc"})
        again = await lab.client.get_workload(VISION, evicted.name)
        assert (again.status.phase, again.status.attempt) == ("succeeded", 1)
        said = {await lab.said(evicted.name, attempt) for attempt in (0, 1)}
        values = table.items[evicted.spec.part].parameters
        assert said == {f"tries {values['width']} {values['depth']}\n"}
        histories = {
            number: await lab.client.history(VISION, one.name)
            for number, one in (await lab.workloads()).items()
        }
        assert most_at_once(histories) == 3
        assert most_at_once(histories, since=taken.status.started_at or 0.0) == 2
