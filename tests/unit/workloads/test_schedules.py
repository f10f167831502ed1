"""Schedules in virtual time: due, missed, overlapping, suspended, and looked at twice."""

import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.workloads.controllers.contract import DesiredState
from carrel_scheduler.workloads.controllers.schedules import DUE_LABEL, decide, run_name
from carrel_schema.objects import Meta, Phase, Workload, WorkloadSpec, WorkloadStatus
from carrel_schema.sections import NotebookSpec, ScheduleSpec, ScheduleStatus

HOUR = 3600.0
NOON = 1_780_315_200.0
"""2026-06-01, 12:00 UTC."""


@dataclass
class Clockwork:
    """A schedule and its runs; carries out what is wanted, wholly or as far as a crash lets it."""

    owner: Workload
    parts: dict[int, Workload] = field(default_factory=dict)
    now: float = NOON + 1.0

    def look(self, at: float | None = None, *, crash: bool = False) -> DesiredState:
        self.now = self.now if at is None else at
        wanted = decide(copy.deepcopy(self.owner), list(self.parts.values()), self.now)
        for uid in wanted.deleted:
            self.parts = {n: part for n, part in self.parts.items() if part.meta.uid != uid}
        for new in wanted.created:
            assert new.number not in self.parts
            self.parts[new.number] = Workload(
                meta=Meta(name=new.name, uid=f"p{new.number}", labels=dict(new.labels)),
                spec=msgspec.structs.replace(new.spec, owner="s1", part=new.number),
                status=WorkloadStatus(),
            )
        if not crash:
            self.owner.status = wanted.status
        return wanted

    def follow(self, until: float) -> None:
        """Look whenever it is time, as the manager does."""
        wanted = self.look()
        while wanted.look_again_at is not None and wanted.look_again_at <= until:
            wanted = self.look(wanted.look_again_at)
        self.now = until

    def ends(self, number: int, phase: Phase = "succeeded") -> None:
        self.parts[number].status.phase = phase

    @property
    def status(self) -> ScheduleStatus:
        assert self.owner.status.schedule is not None
        return self.owner.status.schedule


def a_schedule(**fields: Any) -> Clockwork:
    spec = WorkloadSpec(
        kind="schedule",
        user="ada",
        command=["python", "-m", "carrel.job.notebook"],
        notebook=NotebookSpec(path="/a.ipynb"),
        schedule=ScheduleSpec(cron="0 * * * *", **fields),
    )
    meta = Meta(name="hourly", project="vision", uid="s1", created_at=NOON, labels={"team": "x"})
    return Clockwork(Workload(meta=meta, spec=spec))


def test_it_waits_for_its_time_and_begins_a_run() -> None:
    work = a_schedule()
    first = work.look()
    assert (first.status.phase, first.created, first.look_again_at) == ("running", [], NOON + HOUR)
    [run] = work.look(NOON + HOUR + 2.0).created
    assert (run.number, run.name, run.spec.kind) == (1, "hourly-1", "notebook")
    assert (run.spec.schedule, run.spec.notebook) == (None, NotebookSpec(path="/a.ipynb"))
    assert run.labels == {"team": "x", DUE_LABEL: f"{NOON + HOUR:.0f}"}
    assert work.status == ScheduleStatus(
        last_at=NOON + HOUR, next_at=NOON + 2 * HOUR, last_run="hourly-1", runs=1
    )


def test_a_look_in_between_changes_nothing() -> None:
    work = a_schedule()
    work.look()
    before = copy.deepcopy(work.owner.status)
    wanted = work.look(NOON + HOUR - 1.0)
    assert wanted.status == before
    assert (wanted.created, wanted.deleted) == ([], [])


@pytest.mark.parametrize(
    ("overlap", "there", "skipped"), [("skip", [1], 1), ("allow", [1, 2], 0), ("replace", [2], 0)]
)
def test_while_the_run_before_goes_on(overlap: str, there: list[int], skipped: int) -> None:
    work = a_schedule(overlap=overlap)
    work.follow(NOON + 2 * HOUR)
    assert sorted(work.parts) == there
    assert (work.status.skipped, work.status.missed) == (skipped, 0)


def test_a_run_that_is_over_is_in_nobodys_way() -> None:
    work = a_schedule()
    for number, phase in enumerate(("succeeded", "failed", "stopped"), start=1):
        work.look(NOON + number * HOUR)
        work.ends(number, phase)  # type: ignore[arg-type]  # each is a phase
    work.look(NOON + 4 * HOUR)
    assert sorted(work.parts) == [1, 2, 3, 4]
    assert work.status.skipped == 0


def test_missed_times_within_the_deadline_are_run_once() -> None:
    work = a_schedule(starting_deadline_seconds=1800.0)
    work.look()
    [run] = work.look(NOON + 5 * HOUR + 1800.0).created
    assert run.labels[DUE_LABEL] == f"{NOON + 5 * HOUR:.0f}"
    assert (work.status.missed, work.status.runs) == (4, 1)
    assert work.status.next_at == NOON + 6 * HOUR


def test_missed_times_beyond_the_deadline_are_left_out() -> None:
    work = a_schedule(starting_deadline_seconds=1800.0)
    work.look()
    assert work.look(NOON + 5 * HOUR + 1801.0).created == []
    assert (work.status.missed, work.status.runs, work.status.last_run) == (5, 0, "")
    assert work.status.next_at == NOON + 6 * HOUR


def test_one_that_was_never_looked_at_counts_from_when_it_was_made() -> None:
    work = a_schedule()
    assert len(work.look(NOON + HOUR + 5.0).created) == 1


def test_suspended_it_begins_nothing_and_what_runs_goes_on() -> None:
    work = a_schedule()
    work.look(NOON + HOUR)
    work.owner.spec.suspend = True
    wanted = work.look(NOON + HOUR + 10.0)
    assert (wanted.status.phase, wanted.changed) == ("stopped", [])
    assert wanted.look_again_at is None
    assert work.look(NOON + 9 * HOUR).created == []
    work.ends(1)
    work.owner.spec.suspend = False
    wanted = work.look(NOON + 9.5 * HOUR)
    assert (wanted.status.phase, wanted.created) == ("running", [])
    assert (work.status.missed, work.status.next_at) == (0, NOON + 10 * HOUR)
    assert len(work.look(NOON + 10 * HOUR).created) == 1


def test_only_so_many_ended_runs_stay() -> None:
    work = a_schedule(keep=2)
    for number in range(1, 6):
        work.look(NOON + number * HOUR)
        work.ends(number)
    work.look()
    assert sorted(work.parts) == [4, 5]
    assert work.look(NOON + 6 * HOUR).created[0].name == "hourly-6"


def test_numbers_never_come_twice_even_when_runs_were_deleted() -> None:
    work = a_schedule()
    work.look(NOON + HOUR)
    work.parts.clear()
    assert [new.number for new in work.look(NOON + 2 * HOUR).created] == [2]


def test_a_crash_between_the_run_and_its_record_begins_none_twice() -> None:
    work = a_schedule(overlap="allow")
    work.look()
    work.look(NOON + HOUR, crash=True)
    assert sorted(work.parts) == [1]
    assert work.look(NOON + HOUR + 3.0).created == []
    assert work.status == ScheduleStatus(
        last_at=NOON + HOUR, next_at=NOON + 2 * HOUR, last_run="hourly-1", runs=1
    )


@settings(max_examples=40, deadline=None)
@given(
    looks=st.lists(st.tuples(st.floats(1.0, 5 * HOUR), st.booleans()), max_size=8),
    overlap=st.sampled_from(["skip", "allow", "replace"]),
)
def test_every_time_is_run_missed_or_skipped_exactly_once(
    looks: list[tuple[float, bool]], overlap: str
) -> None:
    work = a_schedule(overlap=overlap, keep=1000)
    seen: set[str] = set()
    for pause, crash in [*looks, (1.0, False)]:
        made = work.look(work.now + pause, crash=crash).created
        assert not seen & {new.labels[DUE_LABEL] for new in made}
        seen |= {new.labels[DUE_LABEL] for new in made}
    facts, passed = work.status, int((work.now - NOON) // HOUR)
    assert facts.runs == len(seen)
    decided = facts.runs + facts.missed + facts.skipped
    # A run that was replaced before it was recorded is known by its number alone.
    crashed = sum(crash for _, crash in looks) if overlap == "replace" else 0
    assert passed <= decided <= passed + crashed


def test_a_long_name_leaves_room_for_the_number() -> None:
    assert run_name("a" * 63, 12) == "a" * 60 + "-12"
    assert run_name("a" * 60 + "-bc", 1234) == "a" * 58 + "-1234"
