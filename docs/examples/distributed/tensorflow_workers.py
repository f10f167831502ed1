"""Data-parallel training with TensorFlow: every worker has a part of the data, all share one model.

carrel submit tf --workers 2 --gpus 1 --working-dir "$PWD" -- python tensorflow_workers.py
"""

import json
import os
import time

import numpy as np
import tensorflow as tf

import carrel

STEPS = int(os.environ.get("STEPS", "200"))
PAUSE = float(os.environ.get("STEP_SECONDS", "0"))  # stands for a larger model
SHARED = os.environ.get("CARREL_CHECKPOINT_DIR", "checkpoints")

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # finds the others by TF_CONFIG
here = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"index": 0})
rank, workers = here["index"], strategy.num_replicas_in_sync

random = np.random.default_rng(rank)
inputs = random.normal(size=(256, 8)).astype("float32")
targets = inputs @ np.arange(8, dtype="float32")

state = carrel.checkpoint.restore(
    default={"step": 0, "weights": np.zeros(8, "float32")}, directory=SHARED
)
start = int(state["step"])
with strategy.scope():
    weights = tf.Variable(state["weights"])


@tf.function
def step(x, y):
    def of_one_worker():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(x, weights) - y) ** 2)
        gradient = tape.gradient(loss, weights)
        context = tf.distribute.get_replica_context()
        mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
        weights.assign_sub(0.05 * mean)
        return loss

    losses = strategy.run(of_one_worker)
    return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)


for number in range(start + 1, STEPS + 1):
    loss = float(step(inputs, targets))
    time.sleep(PAUSE)
    if rank == 0:
        carrel.report(step=number, total=STEPS, loss=loss)
        if number % 10 == 0:
            value = {"step": number, "weights": weights.numpy()}
            carrel.checkpoint.save(value, step=number, directory=SHARED)
    if carrel.checkpoint.preempted():
        carrel.checkpoint.exit_for_preemption()
print(f"worker {rank} of {workers}: loss {loss:.6f} after steps {start + 1} to {STEPS}")
