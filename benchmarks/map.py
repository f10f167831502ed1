"""``carrel.map``: many short calls a second, against joblib and Ray in the same run.

10,000 calls of a function that sleeps for 1 ms, on 8 workers, from before the call to its results,
the start of the workers and their imports included.

* *ours*: a real scheduler service on loopback, SQLite with full sync and simulated
  GPUs: each worker is a task under a quota, with limits, a log and a record; each call has its
  record; what returns is stored before anybody hears of it.
* *joblib*: ``Parallel(n_jobs=8)`` with its own processes (loky).
* *Ray*: ``ray.init(num_cpus=8)`` and a task for each call. Only where Ray is installed.

``python -m benchmarks.map [--json] [--calls 10000] [--workers 8]``
"""

import argparse
import asyncio
import importlib
import importlib.util
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, show
from benchmarks.running_scheduler import ADA, running_scheduler
from carrel import AsyncClient

GOAL_PER_SECOND = 300.0


def call(number: int) -> int:
    """A call of about a millisecond."""
    time.sleep(0.001)
    return number


async def ours(folder: Path, calls: int, workers: int) -> float:
    """Seconds of ``map``."""
    async with (
        running_scheduler(folder, folder=folder, gpus=workers) as (scheduler, _),
        AsyncClient(scheduler.url, ADA) as client,
    ):
        await client.create_project({"name": "vision", "quota": {"gpus": workers}})
        began = time.perf_counter()
        found = await client.map(
            call,
            range(calls),
            project="vision",
            gpus=1,
            workers=workers,
            memory_bytes=1 << 28,
            cpu_millicores=100,
            progress=False,
        )
        seconds = time.perf_counter() - began
    check(found, calls)
    return seconds


def by_joblib(calls: int, workers: int) -> float:
    """Seconds of joblib's own processes."""
    joblib: Any = importlib.import_module("joblib")
    began = time.perf_counter()
    found = joblib.Parallel(n_jobs=workers)(joblib.delayed(call)(one) for one in range(calls))
    seconds = time.perf_counter() - began
    check(found, calls)
    return seconds


def by_ray(calls: int, workers: int) -> float:
    """Seconds of a Ray of this machine."""
    ray: Any = importlib.import_module("ray")
    began = time.perf_counter()
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(call)
    found = ray.get([remote.remote(one) for one in range(calls)])
    seconds = time.perf_counter() - began
    ray.shutdown()
    check(found, calls)
    return seconds


def check(found: list[int], calls: int) -> None:
    if found != list(range(calls)):
        raise RuntimeError("the results are not those of the calls")


def measure(calls: int, workers: int) -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="carrel-map-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        own = asyncio.run(ours(folder / "state", calls, workers))
    finally:
        shutil.rmtree(folder)
    rate = calls / own
    goal = f">= {GOAL_PER_SECOND:.0f}"
    figures = [Figure("calls of carrel.map", rate, "/s", goal, rate >= GOAL_PER_SECOND)]
    for name, peer in (("joblib", by_joblib), ("ray", by_ray)):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed and is not measured.")
            continue
        seconds = peer(calls, workers)
        unit = f"x ({own:.1f} s, {name} {seconds:.1f} s)"
        figures.append(Figure(f"time of carrel.map against {name}", own / seconds, unit, "-"))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    figures = measure(options.calls, options.workers)
    title = f"{options.calls:,} calls of 1 ms, {options.workers} at once"
    show(title, figures, as_json=options.json)


if __name__ == "__main__":
    main()
