"""The cost of the limiter of GPU memory for a program, on the test driver.

``python -m benchmarks.limiter [--json] [--calls 20000] [--rounds 7]``

The same program runs in turns with the limiter and without. Its driver answers at once, which tells
the nanoseconds of a call, and then takes 10 µs for each call that allocates or frees, which is less
than real drivers take: cudaMalloc is tens of microseconds and more. Of the rounds the quickest
counts on both sides: other work of the machine only ever adds to it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import Figure, median, show
from carrel_scheduler.node.limiter.library import find_library

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gpu_driver.build import build
from gpu_driver.limited import LimitedTask, build_cuda
from gpu_driver.state import GpuState

DRIVER_NS = 10_000
MOST_PER_CENT = 5.0
MOST_LAUNCH_NS = 5.0
WAYS = ("linear", "pooled", "launch")


def measure(program: Path, environment: dict[str, str], calls: int) -> dict[str, float]:
    """Nanoseconds of one round of each way."""
    done = subprocess.run(
        [program, str(calls)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(zip(WAYS, map(float, done.stdout.split()), strict=True))


def in_turns(
    program: Path, task: LimitedTask, calls: int, rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """The quickest rounds without and with the limiter."""
    free = {name: value for name, value in task.environment.items() if name != "LD_PRELOAD"}
    seen = [
        (measure(program, free, calls), measure(program, task.environment, calls))
        for _ in range(rounds)
    ]
    without, within = (
        {way: min(pair[side][way] for pair in seen) for way in WAYS} for side in (0, 1)
    )
    return without, within


def run(calls: int, rounds: int) -> list[Figure]:
    """Measure all figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        drivers = build_cuda(folder)
        gpus = GpuState.create(folder / "gpus")
        task = LimitedTask(folder / "task", gpus, find_library(), drivers)
        source = Path(__file__).with_name("limiter_calls.c")
        program = build(source, folder / "calls", f"{drivers}/libcuda.so.1")
        at_once, limited_at_once = in_turns(program, task, calls, rounds)
        gpus.layout.allocation_ns = DRIVER_NS
        slow, limited_slow = in_turns(program, task, max(1, calls // 10), rounds)
        gpus.layout.allocation_ns = 0
        many = contended(program, task, calls)
    figures = [
        Figure(f"{way}: allocation and end, added", limited_at_once[way] - at_once[way], "ns", "-")
        for way in WAYS[:2]
    ]
    figures += [over(f"{way}: driver of 10 µs", limited_slow[way], slow[way]) for way in WAYS[:2]]
    figures.append(Figure("linear, 8 processes at once", many, "ns", "-"))
    added = limited_at_once["launch"] - at_once["launch"]
    figures.append(Figure("launch, added", added, "ns", "at most 5", added <= MOST_LAUNCH_NS))
    return figures


def over(figure: str, limited: float, free: float) -> Figure:
    """The per cent by which calls take longer."""
    value = (limited / free - 1) * 100
    return Figure(figure, value, "%", f"at most {MOST_PER_CENT:g}", value <= MOST_PER_CENT)


def contended(program: Path, task: LimitedTask, calls: int) -> float:
    """Nanoseconds of a round while eight processes allocate from one limit."""
    command = [str(program), str(calls)]
    running = [
        subprocess.Popen(command, env=task.environment, stdout=subprocess.PIPE) for _ in range(8)
    ]
    told = [process.communicate()[0].split()[0] for process in running]
    return median([float(one) for one in told])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    os.environ.pop("LD_PRELOAD", None)
    figures = run(options.calls, options.rounds)
    show("The limiter of GPU memory", figures, as_json=options.json)


if __name__ == "__main__":
    main()
