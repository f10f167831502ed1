"""Ray on several workers: the first is the head and the driver, the others lend their processors.

carrel submit ray --workers 2 --working-dir "$PWD" -- python ray_tasks.py
"""

import os
import socket
import subprocess
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import carrel

STEPS = int(os.environ.get("STEPS", "20"))
PAUSE = float(os.environ.get("STEP_SECONDS", "0"))  # stands for longer tasks
SHARED = os.environ.get("CARREL_CHECKPOINT_DIR", "checkpoints")

rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
common = ["--num-cpus=1", "--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0"]
common.append("--include-log-monitor=false")  # what tasks print stays in files: see ray.init below
if address == "127.0.0.1":  # all on one machine: Ray takes workers of one address for one node
    address = "127.0.0.2"
    common.append(f"--node-ip-address=127.0.0.{rank + 2}")
# On a busy machine Ray waits long enough for these only when it does not choose them itself.
for option in (
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "runtime-env-agent-port",
):
    with socket.create_server(("", 0)) as free:
        common.append(f"--{option}={free.getsockname()[1]}")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "240")
head = ["ray", "start", "--head", f"--port={port}", "--include-dashboard=false"]
member = ["ray", "start", f"--address={address}:{port}"]


def head_is_there() -> bool:
    """Whether the first worker's Ray answers."""
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def lend_processors() -> None:
    """Belong to the first worker's Ray for as long as it is there."""
    while not head_is_there():
        time.sleep(0.2)
    subprocess.run([*member, *common], check=True)
    while head_is_there():
        time.sleep(0.5)
    print(f"worker {rank} of {workers} is done", flush=True)


def drive() -> None:
    """Hand out tasks until all are done; what is done is saved."""
    subprocess.run([*head, *common], check=True)
    ray.init(address=f"{address}:{port}", log_to_driver=False)
    while len(ray.nodes()) < workers:
        time.sleep(0.2)

    @ray.remote(num_cpus=1)
    def square(number: int) -> tuple[int, str]:
        time.sleep(PAUSE)
        return number**2, ray.get_runtime_context().get_node_id()

    everywhere = [
        square.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        )
        for node in ray.nodes()
    ]
    state = carrel.checkpoint.restore(default={"step": 0, "sum": 0}, directory=SHARED)
    start, nodes = state["step"], set()
    for step in range(start, STEPS):
        answers = ray.get([one.remote(step) for one in everywhere])
        nodes |= {node for _, node in answers}
        state = {"step": step + 1, "sum": state["sum"] + answers[0][0]}
        carrel.report(step=step + 1, total=STEPS)
        carrel.checkpoint.save(state, step=step + 1, directory=SHARED)
    print(f"the sum is {state['sum']}, computed on {len(nodes)} nodes from step {start} on")


if rank == 0:
    drive()
else:
    lend_processors()
