"""Trials that crash, say nothing, are pruned; experiments that are suspended, resumed, deleted."""

from pathlib import Path

import pytest

from carrel.errors import ApiError
from contract.experiments.running import VISION, Lab, running

pytestmark = pytest.mark.timeout(1500)

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
carrel.checkpoint.save({"x": x}, step=1)
trial.result(x)
"""


GOES_ON = """
import carrel
began = carrel.checkpoint.restore(default={"x": None})
carrel.checkpoint.save({"x": 2}, step=2)
print("began with", f"{began['x']}, went on with", carrel.checkpoint.restore()["x"])
"""


async def test_crashes_silence_and_an_end_of_the_grid(tmp_path: Path) -> None:
    """Four experiments beside each other."""
    async with running(tmp_path, gpus=4) as lab:
        await lab.project(VISION, gpus=4)
        goes_on = {"parameters": SPACE, "completions": 6, "max_failed_trials": 2}
        await lab.sweep(CRASH, goes_on, "1", "3", name="goes-on")
        given_up = {"parameters": SPACE, "completions": 8, "max_failed_trials": 1}
        await lab.sweep(CRASH, given_up, "0", "2", name="given-up")
        await lab.sweep(SILENT, {"parameters": SPACE, "completions": 1}, name="silent")
        few = {"x": {"type": "int", "low": 0, "high": 4, "step": 2}}
        grid = {"parameters": few, "sampler": "grid", "completions": 50, "parallelism": 2}
        await lab.sweep(CRASH, grid, name="grid")
        await _goes_on(lab)
        await _given_up(lab)
        await _silent(lab)
        assert (await lab.until_at_rest("grid")).status.phase == "succeeded"
        assert sorted(one.parameters["x"] for one in await lab.rows("grid")) == [0, 2, 4]


async def _goes_on(lab: Lab) -> None:
    done = await lab.until_at_rest("goes-on")
    counts = done.status.experiment
    assert counts is not None
    assert (done.status.phase, counts.completed, counts.failed) == ("succeeded", 4, 2)
    rows = await lab.rows("goes-on")
    assert [one.state for one in rows].count("failed") == 2
    assert f"ValueError: boom {rows[3].parameters['x']}" in rows[3].error
    assert "Traceback" in rows[3].error
    assert (await lab.workloads("goes-on"))[3].status.attempt == 0


async def _given_up(lab: Lab) -> None:
    done = await lab.until_at_rest("given-up")
    reason = done.status.reason
    assert reason is not None
    assert (done.status.phase, reason.token) == ("failed", "TooManyFailedTrials")
    assert "ValueError: boom" in reason.sentence
    states = [one.state for one in await lab.rows("given-up")]
    assert states == ["failed", "completed", "failed"]


async def _silent(lab: Lab) -> None:
    done = await lab.until_at_rest("silent")
    reason = done.status.reason
    assert reason is not None
    assert (done.status.phase, reason.token) == ("failed", "NoTrialCompleted")
    assert "without a value" in (await lab.rows("silent"))[0].error
    with pytest.raises(ApiError) as refused:
        await lab.client.draft_best(VISION, "silent")
    assert refused.value.code == "no_best_trial"


async def test_bad_trials_are_pruned_whether_they_ask_or_not(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=2) as lab:
        await lab.project(VISION, gpus=2)
        pruning = {"parameters": SPACE, "sampler": "grid", "pruner": "median", "completions": 6}
        # Who asks has its grace to leave by itself.
        for name, script, grace_seconds in (("plain", PLAIN, 5), ("asking", ASKING, 120)):
            await lab.sweep(script, pruning, name=name, grace_seconds=grace_seconds)
        for name in ("plain", "asking"):
            done = await lab.until_at_rest(name)
            counts = done.status.experiment
            assert counts is not None
            assert (done.status.phase, counts.completed, counts.pruned) == ("succeeded", 5, 1)
            last = (await lab.rows(name))[5]
            assert (last.state, last.value) == ("pruned", 100.0)
        assert (await lab.workloads("plain"))[5].status.phase == "stopped"
        asked = (await lab.workloads("asking"))[5]
        left = (await lab.rows("asking"))[5].steps[-1][0]
        assert (asked.status.phase, await lab.said(asked.name)) == (
            "succeeded",
            f"left at {left}\n",
        )


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
        assert await lab.said(longer.name) == f"{best['x']} {best['way']}\n{best['x']}\n"
        further = await lab.client.run_best(
            VISION, "sweep", new_name="further", command=["python", "-c", GOES_ON]
        )
        await lab.until(lambda one: one.status.phase == "succeeded", further.name)
        said = await lab.said(further.name)
        assert said.endswith(f"began with {best['x']}, went on with 2\n")


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
