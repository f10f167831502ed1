"""GPUs that were divided beforehand: each keeps its layout, and jobs wait for an instance.

The layouts are chosen for the very jobs that come, so that all profiles take as equal a time as
layouts allow. Jobs are served in their order, and one that has to wait lets later ones pass. A job
takes an instance of its profile, or also a larger one that is idle: whichever of these two rules
ends the jobs at hand sooner.
"""

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from functools import cache

from carrel_scheduler.core import mig

Layout = tuple[mig.Profile, ...]
NEVER = 1e6
Work = dict[mig.Profile, float]
StaticJob = tuple[float, mig.Profile, float]
"""The time of arrival, the request, and the run time in seconds."""


@cache
def layouts(model: mig.Model) -> tuple[Layout, ...]:
    """The ways to fill a GPU so that nothing more fits, largest instances first."""
    plain = sorted((p for p in model.profiles.values() if not p.media), key=lambda p: -p.size)
    found: set[Layout] = set()

    def fill(free: int, taken: Layout) -> None:
        fits = [(p, bits) for p in plain for bits in p.places if bits & free == bits]
        if not fits:
            found.add(tuple(sorted(taken, key=lambda p: (-p.size, -p.compute))))
        last = plain.index(taken[-1]) if taken else 0
        for profile, bits in fits:
            if plain.index(profile) >= last:
                fill(free & ~bits, (*taken, profile))

    fill(model.full, ())
    return tuple(sorted(found, key=lambda one: [(-p.size, -p.compute) for p in one]))


def divide(model: mig.Model, jobs: Sequence[StaticJob], gpus: int) -> list[mig.Profile]:
    """The instances of all GPUs, in proportion to the work of each profile.

    GPUs change their layouts one at a time for as long as that makes the slowest profiles faster.
    """
    work: Work = {}
    for _, profile, seconds in jobs:
        work[profile] = work.get(profile, 0.0) + seconds
    chosen = [layouts(model)[0]] * gpus
    better = True
    while better:
        better = False
        for gpu in range(gpus):
            others = Counter(one for other in (*chosen[:gpu], *chosen[gpu + 1 :]) for one in other)
            best = min(layouts(model), key=lambda one: _times(work, others + Counter(one)))
            if _times(work, others + Counter(best)) < _times(work, others + Counter(chosen[gpu])):
                chosen[gpu], better = best, True
    return [one for layout in chosen for one in layout]


def _times(work: Work, there: Counter[mig.Profile]) -> list[float]:
    """The time of each profile on its own instances, the longest first."""
    times = (work[p] / there[p] if there[p] else NEVER * work[p] * p.size for p in work)
    return sorted(times, reverse=True)


def makespan(model: mig.Model, jobs: Sequence[StaticJob], gpus: int) -> float:
    """The end of the last job, in seconds."""
    instances = divide(model, jobs, gpus)
    return min(_makespan(instances, jobs, exact=exact) for exact in (False, True))


def _makespan(instances: Sequence[mig.Profile], jobs: Sequence[StaticJob], *, exact: bool) -> float:
    idle = Counter(instances)
    by_size = sorted(idle, key=lambda p: (p.size, p.compute))
    coming, waiting = deque(sorted(jobs, key=lambda job: job[0])), list[StaticJob]()
    ends, now, number = list[tuple[float, int, mig.Profile]](), 0.0, 0
    while coming or waiting or ends:
        while coming and coming[0][0] <= now:
            waiting.append(coming.popleft())
        later = []
        for job in waiting:
            given = next((p for p in by_size if idle[p] and _serves(p, job[1], exact=exact)), None)
            if given is None:
                later.append(job)
                continue
            idle[given] -= 1
            number += 1
            heapq.heappush(ends, (now + job[2], number, given))
        waiting = later
        if coming and (not ends or coming[0][0] < ends[0][0]):
            now = coming[0][0]
        elif ends:
            now, _, freed = heapq.heappop(ends)
            idle[freed] += 1
        elif waiting:
            raise ValueError("a job asks for more than any instance")
    return now


def _serves(instance: mig.Profile, asked: mig.Profile, *, exact: bool) -> bool:
    if exact:
        return instance is asked
    return instance.size >= asked.size and instance.compute >= asked.compute
