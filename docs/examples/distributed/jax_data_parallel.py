"""Data-parallel training with JAX: every worker has a part of the data, all share one model.

carrel submit jax --workers 2 --gpus 1 --working-dir "$PWD" -- python jax_data_parallel.py
"""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import carrel

STEPS = int(os.environ.get("STEPS", "200"))
PAUSE = float(os.environ.get("STEP_SECONDS", "0"))  # stands for a larger model
SHARED = os.environ.get("CARREL_CHECKPOINT_DIR", "checkpoints")

jax.distributed.initialize()  # finds the others by itself
rank, workers = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()), "data")
split = NamedSharding(mesh, PartitionSpec("data"))
everywhere = NamedSharding(mesh, PartitionSpec())

random = np.random.default_rng(rank)
inputs = random.normal(size=(256, 8)).astype("float32")
targets = inputs @ np.arange(8, dtype="float32")
x = jax.make_array_from_process_local_data(split, inputs)
y = jax.make_array_from_process_local_data(split, targets)


@jax.jit
def step(weights, x, y):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
    return weights - 0.05 * gradient, loss


state = carrel.checkpoint.restore(
    default={"step": 0, "weights": np.zeros(8, "float32")}, directory=SHARED
)
start = int(state["step"])
weights = jax.device_put(np.asarray(state["weights"]), everywhere)
for number in range(start + 1, STEPS + 1):
    weights, loss = step(weights, x, y)
    time.sleep(PAUSE)
    if rank == 0:
        carrel.report(step=number, total=STEPS, loss=float(loss))
        if number % 10 == 0:
            value = {"step": number, "weights": np.asarray(weights)}
            carrel.checkpoint.save(value, step=number, directory=SHARED)
    if carrel.checkpoint.preempted():
        carrel.checkpoint.exit_for_preemption()
print(f"worker {rank} of {workers}: loss {float(loss):.6f} after steps {start + 1} to {STEPS}")
