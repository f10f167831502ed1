"""Moves of many tasks: what they count for, how they are told, how they are undone."""

import numpy as np
import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.events import CapacityReserved, TaskPlaced, TaskReleasing, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.plan import Eviction, Plan
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.situations import NOW, asking, node, queue, running, state_of, training

GIB = 1024


def elastic(uid: str, project: str, *, tasks: int, least: int) -> WorkloadQueued:
    requests = (asking(2, cpu=3, memory_gib=5),) * tasks
    return training(uid, project, gang=Group(requests=requests, min_tasks=least))


@pytest.fixture
def state() -> State:
    """Two projects of one department run three workloads; a fourth has lost a member."""
    return state_of(
        *(node("n", 8), node("m", 8), queue("dep"), queue("else")),
        *(queue("a", parent="dep"), queue("b", parent="dep")),
        *running(training("x", "a", 2, cpu=3, memory_gib=5), "n", 0, 1),
        *running(training("y", "a", 0.5, cpu=7, memory_gib=11), "n", 2),
        *running(training("z", "b", 1, cpu=13, memory_gib=17), "m", 0),
        elastic("g", "b", tasks=3, least=1),
        *(TaskPlaced("g", k, "m", (2 + 2 * k, 3 + 2 * k), 1.0) for k in range(3)),
        TaskReleasing("g", 1),
    )


def rows_of(state: State, *uids: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(
        [row for uid in uids for i, row in state.job(uid).rows.items()
         if i not in state.job(uid).halted]
    )  # fmt: skip


def used(cycle: Cycle, name: str) -> list[int]:
    return cycle.queue_usage.used[cycle.state.queues.slots[name]]


def taken(cycle: Cycle, before: dict[str, list[int]]) -> dict[str, tuple[int, ...]]:
    """By how much each queue uses less than before."""
    return {
        name: tuple(old - new for old, new in zip(amounts, used(cycle, name), strict=True))
        for name, amounts in before.items()
    }


def test_many_that_stop_leave_their_queues_with_that_much_less(state: State) -> None:
    cycle = Cycle(state, NOW)
    before = {name: list(used(cycle, name)) for name in ("a", "b", "dep", "else")}
    mark = cycle.moves.mark()
    cycle.moves.evict_many(rows_of(state, "x", "y", "z"), Cause(Token.RECLAIMED))
    assert taken(cycle, before) == {
        "a": (2500, 10_000, 16 * GIB),
        "b": (1000, 13_000, 17 * GIB),
        "dep": (3500, 23_000, 33 * GIB),
        "else": (0, 0, 0),
    }
    soon, slot = cycle.free_capacity.soon, state.nodes.slots["n"]
    assert soon.devices[:3, slot].tolist() == [1000, 1000, 1000]
    assert cycle.free_capacity.idle.devices[:3, slot].tolist() == [0, 0, 500]
    assert [cycle.moves.evicted_of(state.job(uid)) for uid in "xyzg"] == [[0], [0], [0], []]
    cycle.moves.rollback(mark)
    assert taken(cycle, before) == dict.fromkeys(before, (0, 0, 0))
    assert not cycle.moves.evicted.any()
    assert cycle.free_capacity.soon.devices[:3, slot].tolist() == [0, 0, 500]


def test_many_mig_instances_that_stop_after_all_not_are_in_use_again() -> None:
    state = state_of(
        node("m", 1, mig_model="A100-40GB", gpu_memory_mib=40960),
        queue("a"),
        *(training(uid, "a", request=Request(mig_profile="1g.5gb")) for uid in "xyz"),
        *(TaskPlaced(uid, 0, "m", (0,), 1.0, 1 << k) for k, uid in enumerate("xyz")),
    )
    cycle, slot = Cycle(state, NOW), state.nodes.slots["m"]
    before = cycle.free_capacity.soon.slots[0, slot]
    cycle.moves.evict(state.job("z"), 0, Cause(Token.RECLAIMED))
    mark = cycle.moves.mark()
    cycle.moves.evict_many(rows_of(state, "x", "y"), Cause(Token.RECLAIMED))
    assert cycle.free_capacity.soon.slots[0, slot] == before | 0b111
    cycle.moves.rollback(mark)
    assert cycle.free_capacity.soon.slots[0, slot] == before | 0b100


def test_nothing_is_left_of_what_is_reserved_for_more_than_is_there(state: State) -> None:
    state.apply(training("late", "a", 8, cpu=64, memory_gib=256))
    state.apply(CapacityReserved("late", (("n", tuple(range(8)), 0),)))
    cycle, slot = Cycle(state, NOW), state.nodes.slots["n"]
    cycle.moves.evict_many(rows_of(state, "x"), Cause(Token.RECLAIMED))
    for layer in (cycle.free_capacity.soon, cycle.free_capacity.idle):
        assert not layer.devices[:, slot].any()
        assert not layer.host[:, slot].any()


def test_places_held_for_many_count_for_their_queue_at_once(state: State) -> None:
    wide = training("wide", "a", 2, tasks=2, cpu=3, memory_gib=5)
    state.apply(wide)
    cycle = Cycle(state, NOW)
    job, before = state.job("wide"), {name: list(used(cycle, name)) for name in ("a", "dep")}
    nodes = np.array([state.nodes.slots["n"]] * 2)
    masks = np.array([0b11000, 0b1100000], np.uint64)
    for fixed, kept in ((False, 0), (True, 4000)):
        mark = cycle.moves.mark()
        cycle.moves.reserve_many(job, (0, 1), nodes, masks, fixed=fixed)
        held = (-4000, -6000, -10 * GIB)
        assert taken(cycle, before) == {"a": held, "dep": held}
        assert cycle.queue_usage.fixed[state.queues.slots["a"]][0] == kept
        assert cycle.answered(job)
        cycle.moves.rollback(mark)
        assert taken(cycle, before) == dict.fromkeys(before, (0, 0, 0))
        assert not cycle.answered(job)


def test_another_move_in_the_place_of_one_that_was_undone_counts(state: State) -> None:
    state.apply(training("p", "a", 1, priority=7))
    state.apply(training("q", "b", 1, priority=5))
    cycle, node_slot = Cycle(state, NOW), state.nodes.slots["n"]
    slots = [state.queues.slots[name] for name in ("a", "b")]
    told = []
    for uid in ("p", "q"):
        job, mark = state.job(uid), cycle.moves.mark()
        place = cycle.footprint(job.shape.classes[0], node_slot, soon=False)
        assert place is not None
        cycle.moves.start(job, 0, place, fixed=False)
        lowest = [int(cycle.lowest[slot]) for slot in slots]
        told.append(([slot in cycle.given for slot in slots], lowest))
        if uid == "p":
            cycle.moves.rollback(mark)
    usual = state.job("x").spec.priority
    assert told == [([True, False], [7, usual]), ([False, True], [usual, 5])]


def stopped(state: State, *uids: str, many: bool, but: int | None = None) -> list[Eviction]:
    """What a plan tells those whose tasks stop, one by one or all in one move."""
    cycle = Cycle(state, NOW)
    cause = Cause(Token.RECLAIMED)
    if many:
        rows = rows_of(state, *uids)
        cycle.moves.evict_many(rows[rows != (-1 if but is None else but)], cause)
    else:
        for uid in uids:
            for index in state.job(uid).running():
                if state.job(uid).rows[index] != but:
                    cycle.moves.evict(state.job(uid), index, cause)
    return list(Plan(cycle).evictions)


@pytest.mark.parametrize("many", [True, False])
def test_who_stops_whole_is_told_so_though_a_member_was_told_before(
    state: State, many: bool
) -> None:
    told = stopped(state, "g", many=many)
    assert [(one.uid, one.indices, one.moved) for one in told] == [("g", (), False)]


@pytest.mark.parametrize("many", [True, False])
def test_who_stops_in_part_is_told_which_members(state: State, many: bool) -> None:
    kept = state.job("g").rows[0]
    told = stopped(state, "x", "g", many=many, but=kept)
    assert [(one.uid, one.indices) for one in told] == [("x", ()), ("g", (2,))]


def test_who_stops_and_starts_elsewhere_moves_if_all_of_it_does(state: State) -> None:
    def told(*indices: int) -> list[tuple[str, tuple[int, ...], bool]]:
        cycle = Cycle(state, NOW)
        job: JobInfo = state.job("g")
        for index in job.running():
            cycle.moves.evict(job, index, Cause(Token.CONSOLIDATED))
        for index in indices:
            place = Footprint(state.nodes.slots["n"], (4 + 2 * index % 4,), 1000, (0, 0))
            cycle.moves.reserve(job, index, place, fixed=False)
        return [(one.uid, one.indices, one.moved) for one in Plan(cycle).evictions]

    assert told(0, 2) == [("g", (), True)]
    assert told(0) == [("g", (), False)]


def test_reasons_read_after_the_plan_was_carried_out_are_of_the_new_state(state: State) -> None:
    state.apply(training("late", "a", 8))
    plan = Plan(Cycle(state, NOW))
    first = plan.reasons
    assert plan.reasons is first
    assert "late" in first
    state.apply(training("later", "a", 8))
    assert "later" in plan.reasons
    assert plan.reasons is not first
    assert plan.reasons is plan.reasons
