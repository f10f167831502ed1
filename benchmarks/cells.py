"""GPU-hours of notebooks: a GPU bound to the workspace against ``%%gpu``, on sessions of a trace.

The sessions are made from the trace by the seeded rule of ``cell_sessions``. What ``%%gpu`` adds to
a cell is measured in the same run on a real installation with free GPUs (``cell_starts``), and each
cell draws from what was measured. So the waits are those of cells for which a GPU is free; with
how many GPUs that is so, is among the figures. A bound workspace holds its GPU until the idle limit
that ``carrel up`` gives to its project strikes; what is spared where every owner stops the
workspace with its last cell, to the second, is among the figures as well.

A library that a cell imports is imported by each new companion, which counts as the cell's own
time; ``--keep`` spares it.

``python -m benchmarks.cells --trace CSV [--json] [--runs 40] [--keep 0] [--seed 1]``
"""

import argparse
import asyncio
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.cell_sessions import (
    THINK_SECONDS,
    Held,
    Session,
    bound,
    by_cells,
    read_jobs,
    sessions,
)
from benchmarks.cell_starts import Starts, measure_starts
from benchmarks.report import Figure, show
from carrel_hub.up.bootstrap import INTERACTIVE

GOAL_LESS: Final = 0.60
GOAL_WAIT_SECONDS: Final = 1.0
HOUR: Final = 3600.0
KEPT_SECONDS: Final = 60.0
IDLE_SECONDS: Final = INTERACTIVE["idle_timeout_seconds"]


def figures(
    made: Sequence[Session], hasty: Sequence[Session], starts: Starts, keep: float, seed: int
) -> list[Figure]:
    """The figures of both ways; ``hasty`` are the same sessions with half of the time to think."""
    draw = random.Random(seed)
    cold, warm = drawn(starts.cold, draw), drawn(starts.warm, draw)
    whole, cells = bound(made, IDLE_SECONDS), by_cells(made, cold, warm, keep)
    kept = by_cells(made, cold, warm, KEPT_SECONDS)
    quick = by_cells(hasty, cold, warm, keep)
    spared = less(cells, whole)
    wait = statistics.quantiles(cells.waits, n=100, method="inclusive")[94]
    computing = math.fsum(math.fsum(one.cells) for one in made)
    return [
        Figure(
            "GPU-hours held with %%gpu, less than bound to workspaces",
            100 * spared,
            f"% ({cells.gpu_seconds / HOUR:,.0f} h, bound {whole.gpu_seconds / HOUR:,.0f} h)",
            f">= {100 * GOAL_LESS:.0f}",
            spared >= GOAL_LESS,
        ),
        Figure(
            "added wait of a cell while a GPU is free, p95",
            wait,
            f"s (a companion's start, p50 {statistics.median(starts.cold):.2f} s)",
            f"<= {GOAL_WAIT_SECONDS:.0f}",
            wait <= GOAL_WAIT_SECONDS,
        ),
        _percent(
            "less, if owners stop workspaces with their last cell", less(cells, bound(made, 0))
        ),
        _percent(f"less, with --keep {KEPT_SECONDS:.0f}", less(kept, whole)),
        _percent("less, with half of the time to think", less(quick, bound(hasty, IDLE_SECONDS))),
        _percent("of the bound GPU-hours, cells compute", computing / whole.gpu_seconds),
        Figure("cells", len(cells.waits), f"(in {len(made):,} sessions)", "-"),
        Figure("GPUs with which no cell waits for one", cells.most, f"(bound {whole.most:,})", "-"),
    ]


def _percent(name: str, part: float) -> Figure:
    return Figure(name, 100 * part, "%", "-")


def less(cells: Held, whole: Held) -> float:
    """The part of the GPU-hours that is spared."""
    return 1 - cells.gpu_seconds / whole.gpu_seconds


def drawn(values: Sequence[float], draw: random.Random) -> Callable[[], float]:
    """A function that draws one of the measured values."""
    return lambda: max(0.0, draw.choice(values))


def main() -> None:
    """Read the arguments, measure, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--keep", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    jobs = read_jobs(asked.trace)
    made, hasty = (sessions(jobs, asked.seed, think=THINK_SECONDS / part) for part in (1, 2))
    starts = asyncio.run(measure_starts(asked.runs))
    found = figures(made, hasty, starts, asked.keep, asked.seed)
    show("Cells on a GPU", found, as_json=asked.json)
    sys.exit(0 if all(one.met for one in found) else 1)


if __name__ == "__main__":
    main()
