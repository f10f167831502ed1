"""MIG profiles of all sizes on GPUs that are divided as work asks, against simpler ways.

**Accepted.** Jobs come one by one, each for one instance; one that cannot start when it comes is
lost. Their number is such that they would fill so much of all memory slots (``--load``). Compared
is the work that was accepted, slots times time: the first place on the first GPU (``first fit``),
the first place on the GPU with the fewest free slots (``best fit``), the core's places, and the
core's with moves: work that saves itself goes to another place when that makes room, and does what
it had not saved once more. Whoever takes every job for which enough slots are free, wherever they
lie, is what all of them come close to at best (``no fragmentation``).

**Makespan.** Jobs come in waves, those of a wave together: small ones, middling ones, then large
ones, and each wave is as much work as all GPUs do until the next one. Compared is when the last job
ends, with the core and on GPUs that were divided beforehand: their layouts are in proportion to the
work of each size in all waves, which nobody knows beforehand (``mig_static``). The same for jobs of
all sizes that are all there at the start. What nobody can be faster than, even with jobs cut into
pieces, is told as ``least possible`` (``mig_bound``).

Every figure is of all seeds together; GPUs have the geometry of an A100 with 80 GB.
"""

import argparse
import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from benchmarks.mig_bound import makespan as least_makespan
from benchmarks.mig_static import makespan as static_makespan
from benchmarks.report import Figure, show
from benchmarks.simulation import Simulation
from carrel_scheduler.core import mig
from carrel_scheduler.core.events import NodeSet, Preemptibility, QueueSet, WorkloadQueued
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import OPEN
from carrel_scheduler.core.settings import Settings
from carrel_scheduler.core.state import State

MODEL: Final = mig.model_of("A100-80GB")
PROFILES: Final = tuple(one for one in MODEL.profiles.values() if not one.media)
MEAN_SECONDS: Final = 3600.0
CHECKPOINT_SECONDS: Final = 300.0
GRACE_SECONDS: Final = 30.0
MORE_ACCEPTED: Final = 10.0
LONGEST: Final = 0.65
GPUS_A_NODE: Final = 8
WAVES: Final = ((1,), (2,), (4, 8))
"""Memory slots of the profiles of each wave."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job with one instance for so many seconds, from ``arrival`` on."""

    number: int
    arrival: float
    profile: mig.Profile
    seconds: float

    @property
    def work(self) -> float:
        """Slots times seconds."""
        return self.profile.size * self.seconds


def jobs_of(seed: int, count: int, gpus: int, load: float) -> list[Job]:
    """Jobs of profiles that are equally frequent, at random times, of exponential length."""
    dice = random.Random(seed)
    mean_slots = sum(one.size for one in PROFILES) / len(PROFILES)
    each = mean_slots * MEAN_SECONDS / (load * gpus * MODEL.slots)
    now, found = 0.0, []
    for number in range(count):
        now += dice.expovariate(1 / each)
        found.append(Job(number, now, dice.choice(PROFILES), dice.expovariate(1 / MEAN_SECONDS)))
    return found


Choice = Callable[[Sequence[int], mig.Profile], tuple[int, int] | None]
"""GPU and slots, as bits, of an instance, by the free slots of each GPU."""


def first_fit(free: Sequence[int], profile: mig.Profile) -> tuple[int, int] | None:
    """The first place on the first GPU that has one."""
    for device, mask in enumerate(free):
        for bits in profile.places:
            if bits & mask == bits:
                return device, bits
    return None


def best_fit(free: Sequence[int], profile: mig.Profile) -> tuple[int, int] | None:
    """The first place on the GPU with the fewest free slots."""
    by_free = sorted(range(len(free)), key=lambda device: free[device].bit_count())
    found = first_fit([free[device] for device in by_free], profile)
    return None if found is None else (by_free[found[0]], found[1])


def without_fragmentation(jobs: Sequence[Job], gpus: int) -> float:
    """The work of whoever accepts every job for which enough slots are free anywhere."""
    free, ends, work = MODEL.slots * gpus, list[tuple[float, int]](), 0.0
    for job in jobs:
        while ends and ends[0][0] <= job.arrival:
            free += heapq.heappop(ends)[1]
        if free >= job.profile.size:
            free -= job.profile.size
            heapq.heappush(ends, (job.arrival + job.seconds, job.profile.size))
            work += job.work
    return work


def waves_of(seed: int, count: int, gpus: int) -> list[Job]:
    """Jobs of small, middling and large profiles, in waves of so much work as GPUs do till next."""
    dice, start, found = random.Random(seed), 0.0, list[Job]()
    for sizes in WAVES:
        wave = [one for one in PROFILES if one.size in sizes]
        work = 0.0
        for _ in range(count // len(WAVES)):
            seconds = dice.expovariate(1 / MEAN_SECONDS)
            found.append(Job(len(found), start, dice.choice(wave), seconds))
            work += found[-1].work
        start += work / (gpus * MODEL.slots)
    return found


def accepted_by(choose: Choice, jobs: Sequence[Job], gpus: int) -> float:
    """The work that a peer accepts."""
    free, ends, work = [MODEL.full] * gpus, list[tuple[float, int, int]](), 0.0
    for job in jobs:
        while ends and ends[0][0] <= job.arrival:
            _, device, bits = heapq.heappop(ends)
            free[device] |= bits
        found = choose(free, job.profile)
        if found is not None:
            device, bits = found
            free[device] &= ~bits
            heapq.heappush(ends, (job.arrival + job.seconds, device, bits))
            work += job.work
    return work


def simulation(gpus: int, *, moves: bool) -> Simulation:
    """The core with these GPUs and one project."""
    state = State(Settings(consolidate=moves, reservation_delay_s=-1))
    for number in range(gpus // GPUS_A_NODE):
        state.apply(
            NodeSet(f"n{number}", GPUS_A_NODE, 10**6, 10**7, mig_model=MODEL.name),
        )
    state.apply(QueueSet("all", OPEN))
    return Simulation(state, grace_seconds=GRACE_SECONDS)


def submit(run: Simulation, job: Job) -> None:
    """A job comes."""
    uid = f"{job.number:06}"
    asked = WorkloadQueued(
        uid,
        uid,
        "all",
        "user",
        50,
        Preemptibility.YES,
        Request(mig_profile=job.profile.name),
        created_at=run.now,
    )
    run.submit(asked, duration=job.seconds, checkpoint_every=CHECKPOINT_SECONDS)


def accepted_by_core(jobs: Sequence[Job], gpus: int, *, moves: bool) -> float:
    """The work that the core accepts: what starts at once, or has a place as soon as one moved."""
    run, work = simulation(gpus, moves=moves), 0.0
    for job in jobs:
        run.run_until(job.arrival)
        submit(run, job)
        run.settle()
        uid = f"{job.number:06}"
        if uid in run.state.holding or uid in run.state.reserved:
            work += job.work
        else:
            run.delete(uid)
    return work


def core_makespan(jobs: Sequence[Job], gpus: int) -> float:
    """The end of the last job."""
    run = simulation(gpus, moves=True)
    for job in jobs:
        run.at(job.arrival, partial(submit, run, job))
    run.run_to_end()
    assert len(run.ended) == len(jobs), "every job came to its end"
    return run.now


def makespans(name: str, jobs: Sequence[Sequence[Job]], gpus: int, goal: float) -> list[Figure]:
    """The core and static partitions side by side, over several lists of jobs; 0: no goal."""
    plain = [[(job.arrival, job.profile, job.seconds) for job in some] for some in jobs]
    core = sum(core_makespan(some, gpus) for some in jobs)
    static = sum(static_makespan(MODEL, some, gpus) for some in plain)
    least = sum(least_makespan(MODEL, some, gpus) for some in plain)
    part, hours = core / static, 3600 * len(jobs)
    words = f"<= {goal:g}" if goal else "-"
    return [
        Figure(f"{name}: makespan of static partitions", static / hours, "h", "-"),
        Figure(f"{name}: makespan of the core", core / hours, "h", "-"),
        Figure(f"{name}: core over static", part, "", words, not goal or part <= goal),
        Figure(f"{name}: least possible over static", least / static, "", "-"),
    ]


def acceptance(jobs: Sequence[Sequence[Job]], gpus: int) -> list[Figure]:
    """The work that each way accepts, and the lead of the core."""
    ways: dict[str, Callable[[Sequence[Job]], float]] = {
        "first fit": lambda some: accepted_by(first_fit, some, gpus),
        "best fit": lambda some: accepted_by(best_fit, some, gpus),
        "core": lambda some: accepted_by_core(some, gpus, moves=False),
        "core with moves": lambda some: accepted_by_core(some, gpus, moves=True),
        "no fragmentation": lambda some: without_fragmentation(some, gpus),
    }
    asked = sum(job.work for some in jobs for job in some)
    work = {name: sum(way(some) for some in jobs) for name, way in ways.items()}
    found = [Figure(f"accepted: {name}", 100 * got / asked, "%", "-") for name, got in work.items()]
    best = ("core with moves", "no fragmentation")
    for peer in ("first fit", "best fit"):
        more, most = (100 * (work[name] / work[peer] - 1) for name in best)
        goal = f">= {MORE_ACCEPTED:g}"
        found += [
            Figure(f"more than {peer}", more, "%", goal, more >= MORE_ACCEPTED),
            Figure(f"more than {peer}, no fragmentation", most, "%", "-"),
        ]
    return found


def main() -> None:
    """Run the study and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mig", description=__doc__)
    parser.add_argument("--gpus", type=int, default=16, help="in nodes of 8")
    parser.add_argument("--load", type=float, default=0.95, help="of all memory slots")
    parser.add_argument("--jobs", type=int, default=2000, help="that come one by one")
    parser.add_argument("--batch", type=int, default=600, help="that come in waves")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="end with a line for machines")
    args = parser.parse_args()
    gpus, seeds = args.gpus, range(1, args.seeds + 1)
    coming = [jobs_of(seed, args.jobs, gpus, args.load) for seed in seeds]
    waves = [waves_of(seed, args.batch, gpus) for seed in seeds]
    together = [[replace(job, arrival=0.0) for job in some] for some in waves]
    rows = [
        *acceptance(coming, gpus),
        *makespans("waves", waves, gpus, LONGEST),
        *makespans("all at once", together, gpus, 0.0),
    ]
    show("MIG instances", rows, as_json=args.json)


if __name__ == "__main__":
    main()
