"""The account of use: laws that hold for any history, and cases worked out by hand."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.ledger.accounting.spans import BY_PLACE, GROUPINGS, parts, spans
from carrel_scheduler.ledger.accounting.usage import (
    Allocated,
    account,
    series,
    sums_of,
    totals_of,
)
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.records import Transition, Usage
from carrel_schema.governance.costs import PricePeriod
from carrel_schema.history import PlaceUse

HORIZON = 200
# A busy machine breaks no law: no deadline per example.
RELAXED = settings(deadline=None, max_examples=60)
AMOUNTS = (
    "gpu_seconds",
    "borrowed_gpu_seconds",
    "cpu_seconds",
    "memory_byte_seconds",
    "wait_seconds",
)
PHASES = ("pending", "starting", "running", "preempting", "stopping", "succeeded", "stopped")
HOLDING = {"starting", "running", "preempting", "stopping"}
LAB = {"vision": "lab"}
PRICES = (
    PricePeriod(gpu_hour=2.0, cpu_hour=0.1),
    PricePeriod(since=50.0, gpu_hour=3.0, memory_gib_hour=0.5),
)
PLACES = (("H100", "training"), ("H100", ""), ("A100", "training"), ("", ""))
WORKLOADS = (("vision", "ada", "a"), ("vision", "bob", "b"), ("speech", "ada", "a"))


def row(index: int, at: float, workload: int, phase: str, **fields: Any) -> Transition:
    """A transition; what it holds defaults to nothing."""
    project, user, name = WORKLOADS[workload]
    return Transition(
        **{
            "id": index,
            "at": at,
            "epoch": 1,
            "workload_uid": f"uid-{workload}",
            "workload": name,
            "project": project,
            "user": user,
            "kind": "training",
            "attempt": 0,
            "from_phase": "",
            "to_phase": phase,
            **fields,
        }
    )


@st.composite
def divisions(draw: st.DrawFn, gpu: int, cpu: int, memory: int) -> tuple[PlaceUse, ...]:
    """Where so much is: at one place, at two, or as rows were before there were places."""
    halves = draw(st.sampled_from(((), (1,), (4, 3))))
    wheres = draw(st.permutations(PLACES))
    return tuple(
        PlaceUse(
            gpu_type=gpu_type,
            node_group=node_group,
            gpu_milli=gpu // part,
            cpu_milli=cpu // part,
            memory_bytes=memory // part,
        )
        for part, (gpu_type, node_group) in zip(halves, wheres, strict=False)
    )


@st.composite
def histories(draw: st.DrawFn, *, clock_set_back: bool = False) -> list[Transition]:
    """Rows of a few workloads, in order of id, with fractions and borrowed use."""
    times = draw(st.lists(st.integers(0, HORIZON), max_size=25))
    rows = []
    for index, at in enumerate(times if clock_set_back else sorted(times)):
        phase = draw(st.sampled_from(PHASES))
        holds = phase in HOLDING
        gpu = draw(st.sampled_from((0, 100, 250, 1000, 8000))) if holds else 0
        places = draw(divisions(gpu, 4000, 2**30)) if holds else ()
        rows.append(
            row(
                index,
                float(at),
                draw(st.integers(0, len(WORKLOADS) - 1)),
                phase,
                gpu_milli=gpu,
                cpu_milli=4000 if holds else 0,
                memory_bytes=2**30 if holds else 0,
                borrowed=holds and draw(st.booleans()),
                places=places,
            )
        )
    return rows


def total(lines: Any, field: str) -> float:
    """Sum of a field over all lines."""
    return math.fsum(getattr(line, field) for line in lines)


@RELAXED
@given(histories(), st.integers(0, HORIZON), st.integers(0, HORIZON))
def test_every_grouping_sums_up_to_the_same(rows: list[Transition], one: int, other: int) -> None:
    since, until = sorted((one, other))
    by = {
        name: account(spans(rows), by=name, since=since, until=until, departments=LAB)
        for name in GROUPINGS
    }
    for field in (*AMOUNTS, "preemptions", "workloads"):
        places = () if field != "workloads" else BY_PLACE
        sums = [total(lines, field) for name, lines in by.items() if name not in places]
        assert sums == pytest.approx([sums[0]] * len(sums), rel=1e-12)
    for name in BY_PLACE:
        assert total(by[name], "workloads") >= total(by["workload"], "workloads")


@RELAXED
@given(histories(clock_set_back=True), st.lists(st.integers(0, HORIZON), min_size=2, max_size=5))
def test_adjoining_times_add_up(rows: list[Transition], cuts: list[int]) -> None:
    cuts.sort()
    whole = {
        line.key: line
        for line in account(spans(rows), by="workload", since=cuts[0], until=cuts[-1])
    }
    parts: dict[str, list[Usage]] = {}
    for since, until in pairwise(cuts):
        for line in account(spans(rows), by="workload", since=since, until=until):
            parts.setdefault(line.key, []).append(line)
    assert parts.keys() == whole.keys()
    for key, line in whole.items():
        for field in (*AMOUNTS, "preemptions"):
            assert total(parts[key], field) == pytest.approx(getattr(line, field), rel=1e-12)


@RELAXED
@given(histories())
def test_gpu_seconds_are_what_a_clock_would_have_counted(rows: list[Transition]) -> None:
    """All times are whole seconds: count each second of each workload by itself."""
    counted = dict.fromkeys(AMOUNTS, 0.0)
    for uid in {row.workload_uid for row in rows}:
        mine = [row for row in rows if row.workload_uid == uid]
        for second in range(HORIZON):
            before = [row for row in mine if row.at <= second]
            if not before:
                continue
            now = before[-1]
            counted["gpu_seconds"] += now.gpu_milli / 1000
            counted["borrowed_gpu_seconds"] += now.borrowed * now.gpu_milli / 1000
            counted["cpu_seconds"] += now.cpu_milli / 1000
            counted["memory_byte_seconds"] += now.memory_bytes
            counted["wait_seconds"] += now.to_phase == "pending"
    lines = account(spans(rows), by="project", since=0, until=HORIZON)
    for field, value in counted.items():
        assert total(lines, field) == pytest.approx(value)


@RELAXED
@given(histories(clock_set_back=True))
def test_nothing_is_negative_and_borrowed_is_a_part(rows: list[Transition]) -> None:
    for line in account(spans(rows), by="project", since=0, until=HORIZON):
        assert all(getattr(line, field) >= 0 for field in AMOUNTS)
        assert line.borrowed_gpu_seconds <= line.gpu_seconds


@RELAXED
@given(histories(), st.integers(0, HORIZON), st.integers(0, HORIZON))
def test_costs_are_those_of_each_period_of_prices(
    rows: list[Transition], one: int, other: int
) -> None:
    since, until = sorted((one, other))
    expected = 0.0
    for price, begins, ends in ((PRICES[0], 0, 50), (PRICES[1], 50, HORIZON)):
        part = account(
            spans(rows),
            by="project",
            since=min(max(since, begins), until),
            until=max(min(until, ends), min(max(since, begins), until)),
        )
        expected += (
            total(part, "gpu_seconds") * price.gpu_hour
            + total(part, "cpu_seconds") * price.cpu_hour
            + total(part, "memory_byte_seconds") / 2**30 * price.memory_gib_hour
        ) / 3600
    for by in GROUPINGS:
        lines = account(spans(rows), by=by, since=since, until=until, prices=PRICES)
        assert total(lines, "cost") == pytest.approx(expected, rel=1e-9, abs=1e-12)


@RELAXED
@given(histories(), st.integers(1, 9), st.sampled_from(GROUPINGS))
def test_a_series_adds_up_to_the_account(rows: list[Transition], buckets: int, by: str) -> None:
    lines = series(spans(rows), by=by, since=0, until=HORIZON, buckets=buckets, departments=LAB)
    whole = account(spans(rows), by=by, since=0, until=HORIZON, departments=LAB)
    held = {line.key: line.gpu_seconds for line in whole if line.gpu_seconds}
    assert {key: math.fsum(line) for key, line in lines.items()} == pytest.approx(held)
    assert all(len(line) == buckets for line in lines.values())


def test_departments_and_kinds_are_keys() -> None:
    rows = [
        row(1, 0.0, 0, "running", gpu_milli=1000),
        row(2, 0.0, 2, "running", gpu_milli=500, kind="workspace"),
    ]
    departments = account(spans(rows), by="department", since=0.0, until=10.0, departments=LAB)
    assert {line.key: line.gpu_seconds for line in departments} == {"default": 5.0, "lab": 10.0}
    kinds = account(spans(rows), by="kind", since=0.0, until=10.0)
    assert {line.key: line.gpu_seconds for line in kinds} == {"training": 10.0, "workspace": 5.0}


def place(gpu_type: str, node_group: str, gpu_milli: int, cpu_milli: int = 0) -> PlaceUse:
    """A part of what is held."""
    return PlaceUse(
        gpu_type=gpu_type, node_group=node_group, gpu_milli=gpu_milli, cpu_milli=cpu_milli
    )


def test_what_is_held_counts_where_it_is() -> None:
    """A gang on two types of GPU, work without GPUs, work that waits, and rows without places."""
    gang = (place("H100", "big", 3000, 6000), place("A100", "big", 1000, 2000))
    rows = [
        row(1, 0.0, 0, "pending"),
        row(2, 4.0, 0, "running", gpu_milli=4000, cpu_milli=8000, places=gang),
        row(
            3,
            14.0,
            0,
            "preempting",
            from_phase="running",
            gpu_milli=4000,
            cpu_milli=8000,
            places=gang,
        ),
        row(4, 14.0, 0, "succeeded"),
        row(5, 0.0, 1, "running", cpu_milli=1000, places=(place("H100", "", 0, 1000),)),
        row(6, 0.0, 2, "running", gpu_milli=500),
    ]
    types = {one.key: one for one in account(spans(rows), by="gpu-type", since=0, until=20.0)}
    assert {key: one.gpu_seconds for key, one in types.items()} == {
        "H100": 30.0,
        "A100": 10.0,
        "(none)": 0.0,
        "(unknown)": 10.0,
    }
    assert {key: one.cpu_seconds for key, one in types.items()} == {
        "H100": 60.0,
        "A100": 20.0,
        "(none)": 20.0,
        "(unknown)": 0.0,
    }
    assert types["(none)"].wait_seconds == 4.0
    assert (types["H100"].preemptions, types["A100"].preemptions) == (1, 0)
    assert [one.workloads for one in types.values()] == [1, 1, 1, 1]
    groups = {one.key: one for one in account(spans(rows), by="node-group", since=0, until=20.0)}
    assert {key: (one.gpu_seconds, one.workloads) for key, one in groups.items()} == {
        "big": (40.0, 1),
        "(none)": (0.0, 1),
        "(unknown)": (10.0, 1),
    }


@RELAXED
@given(histories())
def test_sums_of_finished_work_say_the_same_as_its_spans(rows: list[Transition]) -> None:
    for number in range(len(WORKLOADS)):
        end = row(99, HORIZON, number, "stopped")
        mine = [one for one in rows if one.workload_uid == end.workload_uid]
        found = [*spans([*mine, end])]
        lines = totals_of(found)
        assert added(one.allocated for _, one in lines) == added(
            one.allocated for one in sums_of(found, by="user", since=0, until=HORIZON).values()
        )
        held = {key for one in found if one.holds for key, part in parts(one) if part.holds}
        assert {key for key, one in lines if one.workloads} == (held or {("(none)", "(none)")})


def test_a_fraction_counts_as_such() -> None:
    rows = [row(1, 0.0, 0, "running", gpu_milli=250), row(2, 8.0, 0, "succeeded")]
    (line,) = account(spans(rows), by="user", since=0.0, until=100.0)
    assert line == Usage(
        key="ada",
        gpu_seconds=2.0,
        borrowed_gpu_seconds=0.0,
        cpu_seconds=0.0,
        memory_byte_seconds=0.0,
        wait_seconds=0.0,
        preemptions=0,
        workloads=1,
    )


def test_a_preemption_counts_once_when_it_begins() -> None:
    rows = [
        row(1, 10.0, 0, "running", gpu_milli=1000),
        row(2, 20.0, 0, "preempting", from_phase="running", gpu_milli=1000),
        row(3, 25.0, 0, "preempting", from_phase="preempting", gpu_milli=500),
        row(4, 30.0, 0, "pending", from_phase="preempting"),
    ]

    def preemptions(since: float, until: float) -> int:
        return sum(
            line.preemptions
            for line in account(spans(rows), by="project", since=since, until=until)
        )

    assert preemptions(0.0, 100.0) == 1
    assert preemptions(20.0, 21.0) == 1
    assert preemptions(10.0, 20.0) == 0
    assert preemptions(21.0, 100.0) == 0


def test_what_ended_long_ago_has_no_line() -> None:
    rows = [row(1, 0.0, 0, "running", gpu_milli=1000), row(2, 5.0, 0, "succeeded")]
    assert account(spans(rows), by="project", since=10.0, until=20.0) == []
    assert [line.key for line in account(spans(rows), by="project", since=5.0, until=6.0)] == [
        "vision"
    ]


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("by", {"by": "planet", "since": 0.0, "until": 1.0}),
        ("since", {"by": "user", "since": math.nan, "until": 1.0}),
        ("until", {"by": "user", "since": 0.0, "until": math.inf}),
        ("until", {"by": "user", "since": 2.0, "until": 1.0}),
    ],
)
def test_impossible_questions_are_refused(field: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        account([], **arguments)
    assert caught.value.field == field
    assert caught.value.code == "invalid_argument"


def added(lines: Iterable[Allocated]) -> Allocated:
    """The sum of lines, in integers."""
    whole = Allocated()
    for line in lines:
        for name in Allocated.__struct_fields__:
            setattr(whole, name, getattr(whole, name) + getattr(line, name))
    return whole


@RELAXED
@given(
    histories(),
    st.lists(st.floats(0, HORIZON, allow_nan=False), min_size=3, max_size=3).map(sorted),
    st.floats(-0.5, 0.5),
)
def test_parts_and_groupings_add_up_to_the_last_bit(
    rows: list[Transition], times: list[float], shift: float
) -> None:
    found = list(spans(msgspec.structs.replace(one, at=one.at * 1.1 + shift) for one in rows))
    since, middle, until = times

    def used(by: str, begin: float, end: float) -> Allocated:
        return added(
            line.allocated for line in sums_of(found, by=by, since=begin, until=end).values()
        )

    whole = used("workload", since, until)
    by_hand = sum(
        one.gpu_milli * (round(max(begins, ends) * 1e6) - round(begins * 1e6))
        for one in found
        for begins in [max(one.at, since)]
        for ends in [until if one.ended_at is None else min(one.ended_at, until)]
    )
    assert whole.gpu == by_hand
    for by in GROUPINGS:
        assert used(by, since, until) == whole
        assert added([used(by, since, middle), used(by, middle, until)]) == whole
