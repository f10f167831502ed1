"""Offline batch inference: reads a data set in pieces, writes predictions, goes on where it was.

carrel submit scores --gpus 1 --working-dir "$PWD" -- python batch_inference.py
"""

import os
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import carrel

PIECE = 60
PAUSE = float(os.environ.get("STEP_SECONDS", "0"))  # stands for a larger model
OUTPUT = Path(os.environ.get("CARREL_CHECKPOINT_DIR", ".")) / "predictions.csv"

digits = load_digits()
model = LogisticRegression(max_iter=200).fit(digits.data[::4], digits.target[::4])

done = carrel.checkpoint.restore(default={"rows": 0, "bytes": 0})
start = done["rows"]
OUTPUT.parent.mkdir(exist_ok=True)
with OUTPUT.open("ab") as output:
    output.truncate(done["bytes"])  # what was written after the last checkpoint is written again
    for first in range(start, len(digits.data), PIECE):
        predicted = model.predict(digits.data[first : first + PIECE])
        rows = np.arange(first, first + len(predicted))
        np.savetxt(output, np.column_stack([rows, predicted]), fmt="%d", delimiter=",")
        output.flush()
        done = {"rows": first + len(predicted), "bytes": output.tell()}
        carrel.checkpoint.save(done, step=done["rows"])
        carrel.report(step=done["rows"], total=len(digits.data))
        time.sleep(PAUSE)
        if carrel.checkpoint.preempted():
            carrel.checkpoint.exit_for_preemption()
print(f"{done['rows']} predictions in {OUTPUT.name}, from row {start} on")
