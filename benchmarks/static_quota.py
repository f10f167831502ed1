"""The baseline of the quota study: every virtual cluster has GPUs of its own, and only those.

As kind to it as can be: no node borders, whatever fits of what waits is started in the order of
arrival, nobody is ever stopped, and a job larger than its cluster's quota takes all of it.
"""

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.philly import TraceJob
from carrel_scheduler.core.resources import MILLI


@dataclass(slots=True)
class StaticRun:
    """The result of a run.

    Attributes:
        in_use: part of all GPUs in use while work waits; idle ones count as far as somebody asks.
        held: the same with every idle GPU counted.
        mean_wait_s: of all jobs.
        ended_at: seconds since the first arrival.
    """

    in_use: float
    held: float
    mean_wait_s: float
    ended_at: float


def whole_quotas(milli: dict[str, int]) -> dict[str, int]:
    """Whole GPUs by largest remainder, at least one each; in all what the parts make."""
    found = {name: max(1, part // MILLI) for name, part in milli.items()}
    rest = sum(milli.values()) // MILLI - sum(found.values())
    by_remainder = sorted(milli, key=lambda name: (-(milli[name] % MILLI), name))
    by_size = sorted(milli, key=lambda name: (-milli[name], name))
    for step in range(abs(rest)):
        order = by_remainder if rest > 0 else by_size
        found[order[step % len(order)]] += 1 if rest > 0 else -1
    return found


class _Pool:
    """A virtual cluster: what is free, and what waits by size, oldest first."""

    def __init__(self, gpus: int) -> None:
        self.gpus = self.free = gpus
        self._waiting: dict[int, list[TraceJob]] = {}
        self._heads: Counter[int] = Counter()

    def put(self, job: TraceJob) -> None:
        self._waiting.setdefault(min(job.gpus, self.gpus), []).append(job)

    def next(self) -> tuple[TraceJob, int] | None:
        """The oldest job that fits, and what it takes."""
        heads = [
            (jobs[self._heads[size]], size)
            for size, jobs in self._waiting.items()
            if size <= self.free and self._heads[size] < len(jobs)
        ]
        if not heads:
            return None
        job, size = min(heads, key=lambda pair: (pair[0].arrival, pair[0].uid))
        self._heads[size] += 1
        self.free -= size
        return job, size

    @property
    def asked(self) -> int:
        """GPUs that waiting jobs ask for."""
        return sum(size * (len(j) - self._heads[size]) for size, j in self._waiting.items())


def run(jobs: Sequence[TraceJob], milli: dict[str, int]) -> StaticRun:
    """Run the jobs of a trace, each on its own virtual cluster's GPUs."""
    pools = {name: _Pool(gpus) for name, gpus in whole_quotas(milli).items()}
    total = sum(pool.gpus for pool in pools.values())
    ends: list[tuple[float, str, int]] = []
    arrivals = iter(jobs)
    coming = next(arrivals, None)
    now = waited = asked_capacity = asked_idle = all_idle = 0.0
    idle, asked, asked_of = total, 0, dict.fromkeys(pools, 0)
    while coming is not None or ends:
        at = min(coming.arrival if coming else math.inf, ends[0][0] if ends else math.inf)
        if asked:
            asked_capacity += total * (at - now)
            asked_idle += min(idle, asked) * (at - now)
            all_idle += idle * (at - now)
        now = at
        if ends and ends[0][0] <= now:
            _, name, size = heapq.heappop(ends)
            pools[name].free += size
            idle += size
        elif coming is not None:
            name = coming.cluster
            pools[name].put(coming)
            coming = next(arrivals, None)
        pool = pools[name]
        while (found := pool.next()) is not None:
            job, size = found
            idle -= size
            waited += now - job.arrival
            heapq.heappush(ends, (now + job.duration, name, size))
        asked += pool.asked - asked_of[name]
        asked_of[name] = pool.asked
    whole = asked_capacity or 1.0
    return StaticRun(1 - asked_idle / whole, 1 - all_idle / whole, waited / max(1, len(jobs)), now)
