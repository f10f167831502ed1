"""Building the state of the large cluster from a full listing, in a fresh process.

The listing stands in memory as the log gives it; what is timed is taking it in, with the collector
off, since everything that is made stays. The memory is that of the process when the listing is
forgotten, and its peak before.
"""

import gc
import json
import resource
import subprocess
import sys
import time

import psutil

from benchmarks.decision_cases import steady
from benchmarks.decision_cases.loading import load
from benchmarks.report import Figure, median
from carrel_scheduler.core.state import State

GOAL_S = 1.0
GOAL_MB = 300.0
MB = 1_000_000
LONGEST_S = 600


def run(nodes: int, tasks: int, repeats: int) -> list[Figure]:
    """The figures of one size."""
    command = [sys.executable, "-m", "benchmarks.decision_cases.loaded", str(nodes), str(tasks)]
    runs = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, check=True, timeout=LONGEST_S)
        runs.append(json.loads(done.stdout))
    took = median([one["seconds"] for one in runs])
    busy = median([one["cpu"] for one in runs])
    resident = median([one["resident"] for one in runs])
    peak = median([one["peak"] for one in runs])
    label = f"{nodes:,} nodes, {tasks:,} tasks"
    return [
        Figure(f"{label}: load, processor time", busy, "s", f"<= {GOAL_S:g}", busy <= GOAL_S),
        Figure(f"{label}: load, wall clock", took, "s", "-"),
        Figure(f"{label}: resident", resident, "MB", f"<= {GOAL_MB:g}", resident <= GOAL_MB),
        Figure(f"{label}: peak, with the listing", peak, "MB", "-"),
    ]


def measure(nodes: int, tasks: int) -> dict[str, float]:
    """Load once, here."""
    listing = steady.listing(nodes, tasks)
    gc.collect()
    gc.freeze()
    gc.disable()
    state = State()
    start, busy = time.perf_counter(), time.process_time()
    load(state, listing)
    busy, took = time.process_time() - busy, time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    del listing
    gc.unfreeze()
    gc.enable()
    gc.collect()
    resident = psutil.Process().memory_info().rss
    return {
        "seconds": took,
        "cpu": busy,
        "resident": resident / MB,
        "peak": peak / MB,
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
