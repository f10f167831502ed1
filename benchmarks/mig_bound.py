"""A lower bound of the makespan of jobs on divided GPUs, whoever places them.

Relaxed: a job may be cut into parts that run at any time from its arrival on, also side by side,
and a GPU changes its layout in no time. So between two arrivals only the time matters that GPUs
spend in each layout; a linear program finds the least that is needed after the last arrival.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from benchmarks.mig_static import StaticJob, layouts
from carrel_scheduler.core import mig


def makespan(model: mig.Model, jobs: Sequence[StaticJob], gpus: int) -> float:
    """The earliest end of the last job, in seconds."""
    starts = sorted({arrival for arrival, _, _ in jobs})
    ways = [Counter(layout) for layout in layouts(model)]
    work: dict[tuple[mig.Profile, int], float] = {}
    for arrival, profile, seconds in jobs:
        key = profile, starts.index(arrival)
        work[key] = work.get(key, 0.0) + seconds
    profiles = sorted({profile for profile, _ in work}, key=lambda one: one.name)
    spans, kinds = len(starts), len(ways)
    # GPU seconds in each layout in each span; seconds of each work that run in each span.
    columns = spans * kinds + len(work) * spans
    at_most, limits = list[npt.NDArray[np.float64]](), list[float]()
    for span in range(spans):
        for profile in profiles:
            row = np.zeros(columns)
            row[span * kinds : (span + 1) * kinds] = [-way[profile] for way in ways]
            for number, (asked, first) in enumerate(work):
                if asked is profile and first <= span:
                    row[spans * kinds + number * spans + span] = 1.0
            at_most.append(row)
            limits.append(0.0)
        if span < spans - 1:
            row = np.zeros(columns)
            row[span * kinds : (span + 1) * kinds] = 1.0
            at_most.append(row)
            limits.append(gpus * (starts[span + 1] - starts[span]))
    equal = np.zeros((len(work), columns))
    for number, (_, first) in enumerate(work):
        begin = spans * kinds + number * spans
        equal[number, begin + first : begin + spans] = 1.0
    least = np.zeros(columns)
    least[(spans - 1) * kinds : spans * kinds] = 1.0 / gpus
    found = linprog(least, np.array(at_most), limits, equal, list(work.values()))
    if found.status or found.fun is None:
        raise ValueError(found.message)
    alone = max(arrival + seconds for arrival, _, seconds in jobs)
    return max(starts[-1] + float(found.fun), alone)
