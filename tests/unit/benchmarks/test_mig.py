"""The comparison of MIG instances: nobody is better than what is possible, and no job is lost."""

from collections import Counter

import pytest

from benchmarks import mig as study
from benchmarks.mig_bound import makespan as least_makespan
from benchmarks.mig_static import divide, layouts, makespan

pytestmark = pytest.mark.slow

GPUS = 8


def test_each_way_accepts_a_part_and_moves_accept_more() -> None:
    jobs = study.jobs_of(seed=3, count=300, gpus=GPUS, load=1.2)
    ways = [
        study.accepted_by(study.first_fit, jobs, GPUS),
        study.accepted_by(study.best_fit, jobs, GPUS),
        study.accepted_by_core(jobs, GPUS, moves=False),
        study.accepted_by_core(jobs, GPUS, moves=True),
    ]
    assert all(0 < work < sum(job.work for job in jobs) for work in ways)
    assert ways[-1] == max(ways)
    alone = jobs[:1]
    assert study.accepted_by_core(alone, GPUS, moves=True) == alone[0].work
    assert study.without_fragmentation(alone, GPUS) == alone[0].work


def test_layouts_fill_a_gpu() -> None:
    for layout in layouts(study.MODEL):
        assert sum(profile.size for profile in layout) <= study.MODEL.slots
        assert sum(profile.compute for profile in layout) <= study.MODEL.compute
    names = [tuple(one.name for one in layout) for layout in layouts(study.MODEL)]
    assert len(set(names)) == len(names)
    assert ("7g.80gb",) in names
    assert ("1g.10gb",) * 7 in names


def test_static_partitions_serve_every_profile_and_take_at_least_the_work() -> None:
    waves = study.waves_of(seed=2, count=60, gpus=GPUS)
    jobs = [(job.arrival, job.profile, job.seconds) for job in waves]
    there = Counter(divide(study.MODEL, jobs, GPUS))
    assert all(there[job.profile] for job in waves)
    least = sum(job.work for job in waves) / (GPUS * study.MODEL.slots)
    assert makespan(study.MODEL, jobs, GPUS) >= least
    assert study.core_makespan(waves, GPUS) >= least


def test_nobody_ends_sooner_than_jobs_that_may_be_cut_into_pieces() -> None:
    waves = study.waves_of(seed=2, count=60, gpus=GPUS)
    jobs = [(job.arrival, job.profile, job.seconds) for job in waves]
    least = least_makespan(study.MODEL, jobs, GPUS)
    assert sum(job.work for job in waves) / (GPUS * study.MODEL.slots) <= least
    assert least <= min(study.core_makespan(waves, GPUS), makespan(study.MODEL, jobs, GPUS))


def test_seven_small_instances_fit_on_a_gpu_and_what_comes_later_starts_later() -> None:
    small, whole = (study.MODEL.profiles[name] for name in ("1g.10gb", "7g.80gb"))
    assert least_makespan(study.MODEL, [(0.0, small, 70.0)] * 7, 1) == pytest.approx(70.0)
    assert least_makespan(study.MODEL, [(0.0, small, 70.0)] * 8, 1) == pytest.approx(80.0)
    assert least_makespan(
        study.MODEL, [(0.0, whole, 60.0), (50.0, whole, 5.0)], 1
    ) == pytest.approx(65.0)
