"""Searches that only some cycles make: everybody has a turn, and a question is nobody else's."""

from types import SimpleNamespace
from typing import cast

import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.preemption.preemptors import replaces, reservations_in_turn
from carrel_scheduler.core.work.jobs import JobInfo

JOBS = cast("list[JobInfo]", [object() for _ in range(4)])


def cycle(version: int, *, everything: bool = False, asked: JobInfo | None = None) -> Cycle:
    state = SimpleNamespace(version=version)
    found = SimpleNamespace(
        state=state, now=1_000.0, asked=asked, looks_at_all=lambda _tasks: everything
    )
    return cast("Cycle", found)


@pytest.mark.parametrize("jobs", range(1, 5))
def test_where_much_waits_each_reservation_has_a_turn(jobs: int) -> None:
    some, turns = JOBS[:jobs], list[int]()
    for version in range(16):
        now = cycle(version)
        if replaces(now):
            (job,) = reservations_in_turn(now, some)
            turns.append(some.index(job))
    assert len(turns) == 4
    assert set(turns) == set(range(jobs))


def test_without_reservations_it_is_nobodys_turn() -> None:
    assert list(reservations_in_turn(cycle(2), [])) == []


def test_a_short_queue_has_them_all_looked_at() -> None:
    assert replaces(cycle(1, everything=True))
    assert reservations_in_turn(cycle(1, everything=True), JOBS) == JOBS


def test_a_question_seeks_other_places_for_its_own_workload_only() -> None:
    asked = cycle(1, asked=JOBS[2])
    assert replaces(asked)
    assert reservations_in_turn(asked, JOBS) == [JOBS[2]]
    assert reservations_in_turn(cycle(1, asked=cast("JobInfo", object())), JOBS) == []
