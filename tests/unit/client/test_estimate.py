"""When work is likely to start and to end, or why that is not known."""

from typing import Any

import msgspec
import pytest

from carrel import estimate
from carrel.models import Workload

NOW = 10_000.0


def work(name: str = "train-9", phase: str = "running", gpus: float = 1, **status: Any) -> Workload:
    began = {} if phase == "pending" else {"started_at": NOW - 100}
    return msgspec.convert(
        {
            "name": name,
            "project": "vision",
            "uid": name,
            "spec": {"kind": "training", "gpus": gpus},
            "status": {"phase": phase, **began, **status},
        },
        Workload,
    )


def done(name: str, seconds: float) -> Workload:
    return work(name, "succeeded", started_at=NOW - 5000, ended_at=NOW - 5000 + seconds)


def progress(steps: float, total: float | None = 100, **more: Any) -> dict[str, Any]:
    return {"progress": {"done": steps, "total": total, "at": NOW, **more}}


def test_the_end_follows_from_reported_progress() -> None:
    job = work(**progress(50, rate=0.5))
    found = estimate.end_of(job, [], NOW)
    assert (found.early, found.late) == (NOW + 75, NOW + 125)
    said = estimate.sentence(job, found, NOW)
    assert said == "Likely to end in 1 min to 2 min, by its reported progress."
    without_rate = estimate.end_of(work(**progress(50)), [], NOW)
    assert (without_rate.early, without_rate.late) == (NOW + 75, NOW + 125)


def test_the_end_follows_from_earlier_runs_of_the_name() -> None:
    past = [done("train-1", 300), done("train-2", 500), done("other-1", 9000)]
    found = estimate.end_of(work(), past, NOW)
    assert (found.early, found.late) == (NOW + 200, NOW + 400)
    assert found.why == "by 2 earlier runs of its name"
    over = estimate.end_of(work(), [done("train-1", 40)], NOW)
    assert (over.early, over.late) == (NOW, NOW)


def test_a_declared_limit_bounds_the_end() -> None:
    limits: dict[str, Any] = {"limits": {"stops_at": NOW + 80, "stops_because": "TimeLimit"}}
    assert estimate.end_of(work(**limits), [], NOW).late == NOW + 80
    both = estimate.end_of(work(**limits, **progress(50, rate=0.5)), [], NOW)
    assert (both.early, both.late) == (NOW + 75, NOW + 80)


def test_what_is_not_known_says_why() -> None:
    job = work()
    said = estimate.sentence(job, estimate.end_of(job, [], NOW), NOW)
    assert said.startswith("When it ends is not known: it reports no `total`")
    assert estimate.sentence(done("x", 1), estimate.Estimate(), NOW) == ""


def test_the_start_follows_from_the_ends_of_what_holds_gpus() -> None:
    running = [work("a", **progress(50, rate=0.5)), work("b", **progress(50, rate=0.1))]
    first = work("first", "pending", queue_position=1)
    second = work("second", "pending", queue_position=2)
    others = [*running, first, second]
    assert estimate.start_of(first, others, [], NOW).late == NOW + 125
    found = estimate.start_of(second, others, [], NOW)
    assert (found.early, found.late) == (NOW + 375, NOW + 625)
    third = work("third", "pending", queue_position=3)
    assert not estimate.start_of(third, [*others, third], [], NOW).known


@pytest.mark.parametrize(
    ("status", "gpus", "why"),
    [
        ({"queue_position": 1}, 1, "1 of 1 that hold GPUs do not say when they end"),
        ({}, 1, "its place in the queue is being decided"),
        ({"queue_position": 1}, 0, "it needs no GPU"),
    ],
)
def test_a_start_that_is_not_known_says_why(status: dict[str, Any], gpus: float, why: str) -> None:
    job = work("mine", "pending", gpus=gpus, **status)
    assert why in estimate.start_of(job, [work("silent"), job], [], NOW).why
