"""The benchmark of cells: sessions follow the rule, and both ways hold what the figures say."""

from pathlib import Path

import pytest

from benchmarks.cell_sessions import (
    RELEASE_SECONDS,
    Held,
    Job,
    Session,
    bound,
    by_cells,
    most_at_once,
    read_jobs,
    sessions,
)

TWO = [Session(0, [10, 20], [100]), Session(15, [40], [])]


def cells(keep: float) -> Held:
    return by_cells(TWO, cold=lambda: 2.0, warm=lambda: 0.5, keep=keep)


def test_a_bound_gpu_is_held_over_pauses_and_until_the_idle_limit() -> None:
    found = bound(TWO, idle=60)
    assert found.gpu_seconds == (10 + 100 + 20 + 60) + (40 + 60)
    assert (found.most, set(found.waits)) == (2, {0.0})


def test_a_cell_holds_a_gpu_from_its_start_to_its_end() -> None:
    found = cells(keep=0)
    assert found.gpu_seconds == (2 + 10) + (2 + 20) + (2 + 40) + 3 * RELEASE_SECONDS
    assert found.waits == [2.0, 2.0, 2.0]
    assert found.most == 1


def test_a_kept_gpu_is_held_over_shorter_pauses_and_asked_again() -> None:
    found = cells(keep=100)
    first, second = 2 + 10 + 100 + 0.5 + 20 + 100, 2 + 40 + 100
    assert found.gpu_seconds == first + second + 2 * RELEASE_SECONDS
    assert found.waits == [2.0, 0.5, 2.0]


def test_what_is_given_back_is_free_for_who_comes_then() -> None:
    assert most_at_once([(0, 10), (10, 20), (12, 13)]) == 2


def test_cells_are_short_jobs_of_one_gpu_in_their_order() -> None:
    jobs = [Job(at, 60 + at % 7, 1) for at in range(500)]
    others = [Job(3, 60, 8), Job(4, 4000, 1)]
    made = sessions([*jobs, *others], seed=3)
    assert [cell for one in made for cell in one.cells] == [job.duration for job in jobs]
    assert all(len(one.pauses) == len(one.cells) - 1 for one in made)
    assert made == sessions([*jobs, *others], seed=3)
    assert made != sessions(jobs, seed=4)
    assert {one.begin for one in made} <= {job.submitted for job in jobs}


@pytest.mark.parametrize(
    "text",
    [
        "job_id,num_gpu,submit_time,state,duration\na,1,100,ok,5\nb,2,50,ok,7.5\nc,1,60,failed,\n",
        (
            "timestamp,duration,num_gpus\n"
            "1970-01-01 00:01:40+00:00,5,1\n1970-01-01 00:00:50+00:00,7.5,2\n"
        ),
    ],
)
def test_a_trace_in_seconds_or_with_dates(tmp_path: Path, text: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    assert read_jobs(trace) == [Job(50, 7.5, 2), Job(100, 5, 1)]


def test_a_trace_without_a_column_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_time,duration\n")
    with pytest.raises(ValueError, match="no column num_gpu"):
        read_jobs(trace)
