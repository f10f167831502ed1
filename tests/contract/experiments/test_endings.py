"""Trials that crash, say nothing, are pruned; experiments that are suspended, resumed, deleted."""

from pathlib import Path

import pytest

from carrel.errors import ApiError
from contract.experiments.running import VISION, running

SPACE = {"x": {"type": "int", "low": 0, "high": 7}}
CRASH = """
import os, sys, carrel
if os.environ["CARREL_TRIAL"] in sys.argv[1:]:
    raise ValueError("boom " + os.environ["CARREL_PARAM_X"])
carrel.report(step=0, objective=float(os.environ["CARREL_PARAM_X"]))
"""
SILENT = "print('nothing to say')"
# Trials 0 to 4 are good; the next is bad and would never end.
PLAIN = """
import os, time, carrel
good = int(os.environ["CARREL_TRIAL"]) < 5
for step in range(3):
    carrel.report(step=step, objective=0.0 if good else 100.0)
    time.sleep(0.05 if good else 1.0)
while not good:
    time.sleep(1.0)
"""
ASKING = """
import carrel
trial = carrel.trial(x=0)
step = 0
while trial.number < 5 and step < 3 or trial.number >= 5:
    trial.report(0.0 if trial.number < 5 else 100.0, step)
    if trial.should_prune():
        print("left at", step)
        break
    step += 1
"""
BY_ITSELF = """
import carrel
trial = carrel.trial()
x = trial.suggest_int("x", 0, 1000)
rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
way = trial.suggest_categorical("way", ["up", "down"])
assert trial.suggest_int("x", 0, 1000) == x
trial.result(x)
"""


async def test_a_crash_is_counted_and_the_sweep_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=2) as lab:
        await lab.project(VISION, gpus=2)
        await lab.sweep(
            CRASH,
            {"parameters": SPACE, "completions": 6, "parallelism": 2, "max_failed_trials": 2},
            "1",
            "3",
        )
        done = await lab.until_at_rest()
        counts = done.status.experiment
        assert counts is not None
        assert (done.status.phase, counts.completed, counts.failed) == ("succeeded", 4, 2)
        rows = await lab.rows()
        assert [one.state for one in rows].count("failed") == 2
        assert f"ValueError: boom {rows[3].parameters['x']}" in rows[3].error
        assert "Traceback" in rows[3].error
        assert (await lab.workloads())[3].status.attempt == 0


async def test_more_crashes_than_allowed_end_it(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=1) as lab:
        await lab.project(VISION, gpus=1)
        experiment = {"parameters": SPACE, "completions": 8, "max_failed_trials": 1}
        await lab.sweep(CRASH, experiment, "0", "2")
        done = await lab.until_at_rest()
        assert done.status.phase == "failed"
        assert done.status.reason is not None
        assert done.status.reason.token == "TooManyFailedTrials"
        assert "ValueError: boom" in done.status.reason.sentence
        assert [one.state for one in await lab.rows()] == ["failed", "completed", "failed"]


async def test_trials_without_a_value_have_failed(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=1) as lab:
        await lab.project(VISION, gpus=1)
        await lab.sweep(SILENT, {"parameters": SPACE, "completions": 2, "parallelism": 2})
        done = await lab.until_at_rest()
        assert done.status.reason is not None
        assert (done.status.phase, done.status.reason.token) == ("failed", "NoTrialCompleted")
        assert "without a value" in (await lab.rows())[0].error
        with pytest.raises(ApiError) as refused:
            await lab.client.draft_best(VISION, "sweep")
        assert refused.value.code == "no_best_trial"


@pytest.mark.parametrize("script", [PLAIN, ASKING])
async def test_a_bad_trial_is_pruned(tmp_path: Path, script: str) -> None:
    async with running(tmp_path, gpus=1) as lab:
        await lab.project(VISION, gpus=1)
        experiment = {"parameters": SPACE, "sampler": "grid", "pruner": "median"}
        await lab.sweep(script, {**experiment, "completions": 6}, grace_seconds=5)
        done = await lab.until_at_rest()
        counts = done.status.experiment
        assert counts is not None
        assert (done.status.phase, counts.completed, counts.pruned) == ("succeeded", 5, 1)
        last = (await lab.rows())[5]
        assert (last.state, last.value) == ("pruned", 100.0)
        part = (await lab.workloads())[5]
        if script is ASKING:
            said = "".join([text async for text in lab.client.logs(VISION, part.name)])
            assert (part.status.phase, said) == ("succeeded", f"left at {last.steps[-1][0]}\n")
        else:
            assert part.status.phase == "stopped"


async def test_a_grid_ends_when_it_is_exhausted(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=2) as lab:
        await lab.project(VISION, gpus=2)
        space = {"x": {"type": "int", "low": 0, "high": 4, "step": 2}}
        await lab.sweep(
            CRASH, {"parameters": space, "sampler": "grid", "completions": 50, "parallelism": 2}
        )
        assert (await lab.until_at_rest()).status.phase == "succeeded"
        assert sorted(one.parameters["x"] for one in await lab.rows()) == [0, 2, 4]


async def test_trials_define_their_parameters_and_the_best_runs_again(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=1) as lab:
        await lab.project(VISION, gpus=1)
        await lab.sweep(BY_ITSELF, {"completions": 3, "seed": 1})
        done = await lab.until_at_rest()
        assert done.status.phase == "succeeded"
        rows = await lab.rows()
        assert len({one.parameters["x"] for one in rows}) == 3
        assert all(one.value == one.parameters["x"] for one in rows)
        assert all(set(one.parameters) == {"x", "rate", "way"} for one in rows)
        longer = await lab.client.run_best(
            VISION, "sweep", command=["sh", "-c", "echo {x} {way}; echo $CARREL_PARAM_X"]
        )
        best = min(rows, key=lambda one: one.value or 0.0).parameters
        await lab.until(lambda one: one.status.phase == "succeeded", longer.name)
        said = "".join([text async for text in lab.client.logs(VISION, longer.name)])
        assert said == f"{best['x']} {best['way']}\n{best['x']}\n"


async def test_suspended_resumed_and_deleted(tmp_path: Path) -> None:
    waits = (
        "import os, pathlib, time, carrel\n"
        "while not (pathlib.Path(os.environ['SHARED']) / 'go').exists(): time.sleep(0.05)\n"
        "carrel.report(step=0, objective=1.0)"
    )
    async with running(tmp_path, gpus=2) as lab:
        await lab.project(VISION, gpus=2)
        await lab.sweep(waits, {"parameters": SPACE, "completions": 4, "parallelism": 2})
        await lab.until_trials(
            lambda found: [one.status.phase for one in found.values()] == ["running"] * 2
        )
        await lab.client.suspend(VISION, "sweep")
        await lab.until(lambda one: one.status.phase == "stopped")
        assert {one.status.phase for one in (await lab.workloads()).values()} == {"stopped"}
        assert [one.state for one in await lab.rows()] == ["waiting", "waiting"]
        (lab.folder / "go").touch()
        await lab.client.resume(VISION, "sweep")
        assert (await lab.until_at_rest()).status.phase == "succeeded"
        rows = await lab.rows()
        assert ([one.state for one in rows], rows[0].attempt) == (["completed"] * 4, 1)
        await lab.client.delete_workload(VISION, "sweep")
        await lab.until_trials(lambda found: not found)
