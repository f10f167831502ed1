"""XGBoost on several workers: each has a part of the rows, all grow the same trees.

carrel submit trees --workers 2 --working-dir "$PWD" -- python xgboost_trees.py
"""

import os
import time
from functools import partial

import numpy as np
import xgboost
from xgboost.collective import CommunicatorContext
from xgboost.tracker import RabitTracker

import carrel

ROUNDS = int(os.environ.get("STEPS", "200"))
PAUSE = float(os.environ.get("STEP_SECONDS", "0"))  # stands for more data
SHARED = os.environ.get("CARREL_CHECKPOINT_DIR", "checkpoints")

rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def write(model, folder):
    """One checkpoint: a folder with the trees."""
    folder.mkdir()
    model.save_model(folder / "trees.ubj")


class Saves(xgboost.callback.TrainingCallback):
    """The first worker saves the trees, every ten rounds."""

    def after_iteration(self, model, epoch, evals_log):
        time.sleep(PAUSE)
        step = model.num_boosted_rounds()
        if rank == 0 and step % 10 == 0:
            carrel.report(step=step, total=ROUNDS, rmse=evals_log["train"]["rmse"][-1])
            carrel.checkpoint.save(partial(write, model), step=step, directory=SHARED)
        return False


if rank == 0:
    tracker = RabitTracker(host_ip=address, n_workers=workers, port=port, sortby="task")
    tracker.start()

random = np.random.default_rng(rank)
inputs = random.normal(size=(500, 4))
rows = {"data": inputs, "label": inputs[:, 0] * inputs[:, 1]}
before = carrel.checkpoint.restore(directory=SHARED)
model = xgboost.Booster(model_file=before / "trees.ubj") if before else None
start = model.num_boosted_rounds() if model else 0
with CommunicatorContext(
    dmlc_tracker_uri=address,
    dmlc_tracker_port=port,
    dmlc_task_id=str(rank),
):
    data = xgboost.DMatrix(**rows)
    model = xgboost.train(
        {"max_depth": 3, "nthread": 1},
        data,
        num_boost_round=ROUNDS - start,
        evals=[(data, "train")],
        verbose_eval=False,
        xgb_model=model,
        callbacks=[Saves()],
    )
print(
    f"worker {rank} of {workers}: {model.num_boosted_rounds()} trees, {start} of them from before"
)
