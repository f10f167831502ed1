"""A trial: the first two count until they are told to finish, and go on from where they were."""

import os
import pathlib
import signal
import sys
import time

import carrel

trial = carrel.trial(x=0.0)
folder = pathlib.Path(os.environ["CARREL_CHECKPOINT_DIR"])
kept = folder / "step"
step = int(kept.read_text()) if kept.exists() else 0
told: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
print("begins at", step, flush=True)

while os.environ["CARREL_TRIAL"] in ("0", "1"):
    step += 1
    time.sleep(0.05)
    if told:
        kept.write_text(str(step))
        sys.exit(1)
    if (folder / "finish").exists():
        break
trial.report((trial["x"] - 0.3) ** 2, step)
