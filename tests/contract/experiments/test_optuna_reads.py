"""Optuna's own tools read the study: an unmodified script, plots, copies."""

from pathlib import Path

import pytest

from contract.experiments.running import VISION, run_python, running

pytestmark = pytest.mark.timeout(1500)

TRIAL = """
import os, carrel
x = float(os.environ["CARREL_PARAM_X"])
for step in range(3):
    carrel.trial().report((x - 0.3) ** 2 + 1 / (step + 1), step)
"""
# What anybody would write for Optuna, but for the storage.
READER = """
import carrel, optuna, optuna_dashboard
from wsgiref.util import setup_testing_defaults
storage = carrel.optuna_storage()
study = optuna.load_study(study_name="vision/sweep", storage=storage)
print(len(study.trials), study.direction.name, study.best_trial.number)
print(all(len(trial.intermediate_values) == 3 for trial in study.trials))
print(sorted(optuna.importance.get_param_importances(study)))
print(len(optuna.visualization.plot_optimization_history(study).data[0].x))
print([one.study_name for one in optuna.get_all_study_summaries(storage)])
optuna.copy_study(from_study_name="vision/sweep", from_storage=storage, to_storage="sqlite:///copy.db")
copied = optuna.load_study(study_name="vision/sweep", storage="sqlite:///copy.db")
assert [one.params for one in copied.trials] == [one.params for one in study.trials]
page = {"PATH_INFO": "/api/studies"}
setup_testing_defaults(page)
said = b"".join(optuna_dashboard.wsgi(storage)(page, lambda status, *_: print(status)))
print(b"vision/sweep" in said)
try:
    study.optimize(lambda trial: 0.0, n_trials=1)
except carrel.errors.CarrelError as error:
    print(error)
"""
READ_ONLY = (
    "The studies of experiments are read-only: the scheduler writes them. "
    "Copy one with optuna.copy_study, and write into the copy."
)


async def test_an_unmodified_script_reads_the_study(tmp_path: Path) -> None:
    async with running(tmp_path, gpus=2) as lab:
        await lab.project(VISION, gpus=2)
        space = {"x": {"type": "float", "low": 0.0, "high": 1.0}}
        await lab.sweep(TRIAL, {"parameters": space, "completions": 5, "parallelism": 2})
        await lab.until_at_rest()
        best = (await lab.trials()).best
        assert (await run_python(lab, tmp_path, "-c", READER)).splitlines() == [
            f"5 MINIMIZE {best}",
            "True",
            "['x']",
            "5",
            "['vision/sweep']",
            "200 OK",
            "True",
            READ_ONLY,
        ]
        tool = ("-m", "carrel.cli", "experiment")
        assert await run_python(lab, tmp_path, *tool, "export", "sweep", "sqlite:///mine.db") == (
            "Study vision/sweep was copied to sqlite:///mine.db.\n"
        )
        assert (tmp_path / "mine.db").exists()
        listed = (await run_python(lab, tmp_path, *tool, "list", "--no-headers")).split()
        assert listed[:6] == ["sweep", "Succeeded", "vision", "5/5", "0", "0"]
        rows = (
            await run_python(lab, tmp_path, *tool, "trials", "sweep", "--no-headers")
        ).splitlines()
        assert (len(rows), [row.split()[1] for row in rows]) == (5, ["completed"] * 5)
        assert rows[best or 0].split()[0] == f"{best}*"
        told = await run_python(lab, tmp_path, *tool, "best", "sweep", "--run", "--as", "longer")
        assert "Job longer submitted successfully" in told
        longer = await lab.client.get_workload(VISION, "longer")
        assert longer.spec.environment["CARREL_PARAM_X"] in told
