"""Every recount notices the one thing that was kept wrongly, and says nothing otherwise.

The state holds something of everything: a running gang, a task that stops, room promised, MIG
instances, work that waits. Each case falsifies one number behind the state's back.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.events import (
    CapacityReserved,
    Outcome,
    Preemptibility,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    TaskStuck,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.invariants.columns import check_books
from carrel_scheduler.core.invariants.state import check
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.resources import ResourceVector
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.situations import asking, node, queue, running, state_of, training, workspace

WITH_NIC = asking(1, extended=(("nic", 1),))
Falsify = Callable[[State], None]


@pytest.fixture
def state() -> State:
    """Two plain nodes and one of MIG; `w` is promised what `s` stops on, `q` and `r` wait."""
    return state_of(
        node("m", 2, mig_model="A100-40GB", gpu_memory_mib=40960),
        node("n1", 4, extended=(("nic", 3),)),
        node("n2", 4),
        queue("top", 8),
        queue("a", 3, parent="top"),
        queue("b", 4, parent="top", limit=6),
        training("g", "a", gang=Group(requests=(WITH_NIC,) * 3, min_tasks=2)),
        TaskPlaced("g", 0, "n1", (0,), 1.0),
        TaskPlaced("g", 1, "n1", (1,), 1.0),
        *running(training("s", "a", 2), "n2", 0, 1),
        TaskReleasing("s", 0),
        *running(workspace("i", "b", 0.5), "n2", 2),
        *running(training("j", "b", 0.5), "n2", 2),
        training("m1", "b", request=asking(0, mig_profile="3g.20gb")),
        TaskPlaced("m1", 0, "m", (0,), 1.0, 0b00001111),
        training("w", "b", 2),
        CapacityReserved("w", (("n2", (0, 1), 0),)),
        training("q", "a", 1),
        training("r", "a", 1),
    )  # fmt: skip


def test_what_events_keep_is_right(state: State) -> None:
    assert check(state) == []
    assert check_books(state) == []


def column(name: str, uid: str, value: Any, index: int = 0) -> Falsify:
    def change(state: State) -> None:
        getattr(state.tasks, name)[state.job(uid).rows[index]] = value

    return change


def layer(name: str, part: str, place: tuple[int, str], value: int) -> Falsify:
    def change(state: State) -> None:
        row, slot = place[0], state.nodes.slot(place[1])
        getattr(getattr(state.nodes, name), part)[row, slot] += value

    return change


def sums(name: str, queue_: str, resource: int) -> Falsify:
    def change(state: State) -> None:
        getattr(state.queues, name)[state.queues.slots[queue_], resource] += 1

    return change


def retained_once_more(state: State) -> None:
    state.classes.waiting[state.job("q").shape.classes[0]] += 1


def job(uid: str, **facts: Any) -> Falsify:
    def change(state: State) -> None:
        for name, value in facts.items():
            setattr(state.job(uid), name, value)

    return change


@pytest.mark.parametrize(
    ("falsify", "expected"),
    [
        *(
            (layer(name, part, place, 1), {"layers_equal_recount"})
            for name in ("releasing", "reserved")
            for part, place in (("devices", (3, "n1")), ("host", (1, "n1")), ("host", (2, "n1")),
                                ("slots", (1, "n1")))
        ),
        (layer("free", "host", (2, "n1"), 1), {"layers_equal_recount"}),
        (layer("free", "devices", (3, "n1"), -1), {"layers_equal_recount"}),
        *(
            (sums(name, project, resource), {"queue_sums_equal_recount"})
            for name in ("used", "releasing", "fixed", "waiting", "reserved", "reserved_fixed")
            for project, resource in (("a", 0), ("top", 1), ("b", 2))
        ),
        (lambda s: s.holding.pop("i"), {"indexes_equal_recount"}),
        (lambda s: s.reserved.pop("w"), {"indexes_equal_recount"}),
        (lambda s: s.stale.update(g=s.job("g")), {"indexes_equal_recount"}),
        (lambda s: s.partial.pop("g"), {"indexes_equal_recount", "class_counts_equal_recount"}),
        (lambda s: s.jobs.in_queue.update({s.job("q").queue: 7}), {"indexes_equal_recount"}),
        (retained_once_more, {"class_counts_equal_recount"}),
        (column("victim", "i", 1), {"job_columns_equal_recount"}),
        (column("victim", "j", -1), {"job_columns_equal_recount"}),
        (column("victim", "s", 1), {"job_columns_equal_recount"}),
        (lambda s: s.tasks.victims.clear(), {"victims_equal_recount"}),
        (lambda s: s.jobs.gpu.__setitem__(s.job("j").slot, 1), {"job_columns_equal_recount"}),
        (lambda s: s.jobs.since.__setitem__(s.job("j").slot, 9.0), {"job_columns_equal_recount"}),
        (lambda s: s.jobs.queue.__setitem__(s.job("q").slot, 0), {"job_columns_equal_recount"}),
        (column("index", "g", 2), {"no_row_has_two_tasks"}),
        (column("stopping", "s", value=False), {"no_row_has_two_tasks"}),
        (column("stuck", "s", value=True), {"no_row_has_two_tasks"}),
        (job("w", reservation=()), {"layers_equal_recount", "queue_sums_equal_recount",
                                "indexes_equal_recount"}),
        (job("w", reservation_fixed=True), {"queue_sums_equal_recount"}),
    ],
)  # fmt: skip
def test_what_is_kept_wrongly_is_noticed(
    state: State, falsify: Falsify, expected: set[str]
) -> None:
    falsify(state)
    found = {one.partition(":")[0] for one in check(state) + check_books(state)}
    assert found == expected


def test_the_difference_is_told(state: State) -> None:
    state.holding.pop("i")
    state.queues.used[state.queues.slots["a"], 0] += 5
    state.tasks.victim[state.job("i").rows[0]] = state.job("i").queue
    assert check_books(state) == [
        "queue_sums_equal_recount: USED of a is [2005, 2000, 2048], counted [2000, 2000, 2048]",
        "indexes_equal_recount: holding differs by ['i']",
        "job_columns_equal_recount: i[0] is a possible victim, or not, differently",
    ]


def test_rows_that_lack_a_workload_are_told_by_its_name(state: State) -> None:
    row = state.job("q").waiting
    assert row is not None
    row.members.pop("q")
    assert "indexes_equal_recount: waiting rows differ by ['q']" in check_books(state)


def put(state: State, uid: str, **changes: Any) -> None:
    """Say that a task of one workload lies elsewhere, in its row and nowhere else."""
    row = state.job(uid).rows[0]
    for name, value in changes.items():
        getattr(state.tasks, name)[row] = value


@pytest.mark.parametrize(
    ("uid", "changes", "expected"),
    [
        ("j", {"share": 501}, {"no_device_over_capacity", "tasks_hold_what_they_ask"}),
        ("j", {"share": 499}, {"tasks_hold_what_they_ask"}),
        ("j", {"mask": 0b1000}, set()),
        ("j", {"mask": 0b0010}, {"no_device_over_capacity", "whole_devices_have_one_owner"}),
        ("j", {"mask": 0b1100}, {"tasks_hold_what_they_ask"}),
        ("s", {"mask": 0b1100}, {"no_device_over_capacity", "whole_devices_have_one_owner"}),
        ("m1", {"slots": 0b00011110}, {"mig_slots_disjoint"}),
        ("m1", {"slots": 0b11110000}, set()),
        ("m1", {"mask": 0b100}, {"places_are_on_nodes"}),
        ("i", {"mask": 0b10000}, {"places_are_on_nodes"}),
    ],
)
def test_places_that_cannot_be_are_noticed(
    state: State, uid: str, changes: dict[str, Any], expected: set[str]
) -> None:
    put(state, uid, **changes)
    assert {one.partition(":")[0] for one in check(state)} == expected


def test_instances_that_overlap_are_noticed(state: State) -> None:
    state.apply(training("m2", "b", request=asking(0, mig_profile="3g.20gb")))
    state.apply(TaskPlaced("m2", 0, "m", (0,), 1.0, 0b11110000))
    assert check(state) == []
    put(state, "m2", slots=0b00001111)
    found = check(state)
    assert "mig_slots_disjoint: m2[0] overlaps on device 0" in found


def promise(state: State, uid: str, *places: tuple[int, Footprint]) -> None:
    state.job(uid).reservation = places


def test_promises_are_within_what_is_there(state: State) -> None:
    one = state.job("w").reservation[0]
    promise(state, "q", (0, msgspec.structs.replace(one[1], devices=(1,), share=1)))
    assert check(state) == [
        f"reserved_once: device {(state.nodes.slot('n2'), 1)} is reserved 1001 of 1000"
    ]
    promise(state, "q", (0, msgspec.structs.replace(one[1], devices=(4,))))
    assert check(state) == ["places_are_on_nodes: the reservation of q is on no node"]
    promise(state, "q", (1, msgspec.structs.replace(one[1], devices=(3,))))
    assert [each.partition(":")[0] for each in check(state)] == ["reserved_for_waiting_tasks"]
    promise(state, "q")
    promise(state, "j", (0, msgspec.structs.replace(one[1], devices=(3,))))
    assert check(state) == [
        "reserved_for_waiting_tasks: j[0] runs or does not wait, and has a reservation"
    ]


@pytest.mark.parametrize(("share", "told"), [(3500, False), (3501, True), (4001, True)])
def test_quotas_bind_what_may_not_stop_and_limits_everything(
    state: State, share: int, told: bool
) -> None:
    """Quota 4 and limit 6 of `b`, where `m1` holds two of seven slots more than `j` and `i`."""
    mine = state.queues.slots["b"]
    others = int(state.queues.used[mine, 0]) - 500
    state.queues.set(replace(state.queues.rule(mine), limit=ResourceVector(3500 + others, -1, -1)))
    put(state, "i", share=share)
    found = [one for one in check(state) if one.startswith(("limits", "non_preemptible"))]
    expected = []
    if share > 4000:
        bound = "bound 4000"
        expected = [
            f"non_preemptible_within_quota: b holds {share} gpu in non-preemptible work, {bound}"
        ]
    if told:
        expected.append(f"limits_held: b holds {share + others} gpu, limit {3500 + others}")
    assert found == expected


def test_gates_and_queues(state: State) -> None:
    gated: JobInfo = state.job("j")
    gated.spec = replace(gated.spec, gated=frozenset({0}))
    assert "gated_tasks_wait: j[0] is gated and has a place" in check(state)
    gated.spec = replace(gated.spec, gated=frozenset(), project="a")
    assert "only_leaves_hold_work: j of a is in queue 2" in [
        one.replace(f"queue {state.job('j').queue}", "queue 2") for one in check(state)
    ]


def test_a_core_and_stuck_tasks_are_counted() -> None:
    core = Group(requests=(asking(1),) * 3, min_tasks=2)
    state = state_of(
        node("n", 4),
        queue("a", 4),
        training("c", "a", gang=core, preemptible=Preemptibility.SURPLUS),
        *(TaskPlaced("c", index, "n", (index,), 1.0) for index in range(3)),
        *running(training("t", "a"), "n", 3),
        TaskReleasing("t", 0),
        TaskStuck("t", 0),
    )
    assert check(state) + check_books(state) == []
    assert state.queues.fixed[0].tolist()[0] == 2000
    assert state.nodes.releasing.devices.sum() == 0
    state.apply(TaskReleased("c", 2, Outcome.AGAIN, 5.0))
    assert check(state) + check_books(state) == []
