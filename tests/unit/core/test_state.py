"""Events change the state; contradictory ones change nothing."""

import pytest

from carrel_scheduler.core import State
from carrel_scheduler.core.errors import InvalidEvent, UnknownWorkload
from carrel_scheduler.core.events import (
    CapacityReserved,
    CheckpointSeen,
    Event,
    NodeRemoved,
    NodeSet,
    Outcome,
    QueueRemoved,
    QueueSet,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadQueued,
    WorkloadRemoved,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.invariants.state import check
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import ResourceVector
from unit.core.digest import digest
from unit.core.situations import node, queue, training, workspace


@pytest.fixture
def state() -> State:
    """Two nodes; `pair` runs on both devices of n1, `gang` waits, `desk` waits with a promise."""
    state = State()
    for event in (
        node("n1", 2),
        node("n2", 2),
        queue("a", 2),
        queue("b", 2),
        training("pair", "a", 2, created_at=1.0),
        training("gang", "a", tasks=2, created_at=2.0),
        workspace("desk", "b", created_at=3.0),
        TaskPlaced("pair", 0, "n1", (0, 1), at=10.0),
        CapacityReserved("desk", (("n2", (1,), 0),)),
    ):
        state.apply(event)
    return state


def _asking(request: Request) -> WorkloadQueued:
    return training("x", "a", request=request)


BAD_EVENTS: list[tuple[str, str, Event]] = [
    ("bad_amount", "devices", NodeSet("n9", 65, 1, 1)),
    ("bad_amount", "cpu_milli", NodeSet("n9", 1, -1, 1)),
    ("bad_name", "name", NodeSet("", 1, 1, 1)),
    ("unknown_device", "broken_devices", NodeSet("n9", 1, 1, 1, broken_devices=frozenset({1}))),
    ("device_in_use", "devices", NodeSet("n1", 1, 1, 1)),
    ("unknown_node", "node", NodeRemoved("n9")),
    ("node_in_use", "name", NodeRemoved("n1")),
    ("bad_amount", "quota", QueueSet("c", ResourceVector(-2))),
    ("bad_amount", "weight", QueueSet("c", ResourceVector(), weight=(-1, 0, 0))),
    ("bad_name", "name", QueueSet("", ResourceVector())),
    ("unknown_queue", "name", QueueRemoved("c")),
    ("queue_in_use", "name", QueueRemoved("b")),
    ("unknown_queue", "project", training("x", "c")),
    ("bad_amount", "share_milli", _asking(Request(share_milli=1000))),
    ("bad_amount", "cpu_milli", _asking(Request(cpu_milli=-1))),
    ("bad_amount", "devices", _asking(Request(share_milli=500, devices=0))),
    ("bad_request", "gpus", _asking(Request(gpus=1, share_milli=500))),
    ("bad_amount", "tasks", training("x", "a", tasks=0)),
    ("bad_name", "uid", training("", "a")),
    ("holds_room", "uid", training("pair", "a", 2)),
    ("holds_room", "uid", WorkloadRemoved("pair")),
    ("unknown_workload", "uid", WorkloadRemoved("x")),
    ("unknown_workload", "uid", CheckpointSeen("x", 1.0)),
    ("bad_index", "index", TaskPlaced("pair", 0, "n2", (0, 1), at=1.0)),
    ("bad_index", "index", TaskPlaced("gang", 2, "n2", (0,), at=1.0)),
    ("unknown_node", "node", TaskPlaced("gang", 0, "n9", (0,), at=1.0)),
    ("bad_devices", "devices", TaskPlaced("gang", 0, "n2", (0, 1), at=1.0)),
    ("unknown_device", "devices", TaskPlaced("gang", 0, "n2", (2,), at=1.0)),
    ("device_taken", "devices", TaskPlaced("gang", 0, "n1", (0,), at=1.0)),
    ("not_placed", "index", TaskReleasing("gang", 0)),
    ("not_placed", "index", TaskReleased("pair", 1, Outcome.GONE, 20.0)),
    ("not_waiting", "uid", CapacityReserved("pair", (("n2", (0, 1), 0),))),
    ("bad_places", "places", CapacityReserved("gang", (("n2", (0,), 0),))),
    ("device_taken", "devices", CapacityReserved("gang", (("n2", (0,), 0), ("n2", (0,), 0)))),
    ("device_taken", "devices", CapacityReserved("gang", (("n2", (0,), 0), ("n2", (1,), 0)))),
]


@pytest.mark.parametrize(("code", "field", "event"), BAD_EVENTS, ids=lambda value: str(value)[:40])
def test_contradictions_are_refused(state: State, code: str, field: str, event: Event) -> None:
    before, version, views = digest(state), state.version, state.node_views()
    with pytest.raises(InvalidEvent, match=code) as refused:
        state.apply(event)
    assert (refused.value.code, refused.value.field) == (code, field)
    assert refused.value.expected
    assert (digest(state), state.version, state.node_views()) == (before, version, views)
    assert check(state) == []


def test_telling_a_task_to_stop_twice_is_refused(state: State) -> None:
    state.apply(TaskReleasing("pair", 0))
    with pytest.raises(InvalidEvent, match="already_stopping"):
        state.apply(TaskReleasing("pair", 0))


def test_version_counts_events(state: State) -> None:
    assert state.version == 9
    state.apply(CheckpointSeen("pair", 20.0))
    assert state.version == 10


def test_views_tell_who_holds_what(state: State) -> None:
    state.apply(TaskReleasing("pair", 0))
    state.apply(NodeSet("n2", 2, 64_000, 1024, broken_devices=frozenset({0})))
    first, second = state.node_views()
    assert [d.holders[0].uid for d in first.devices] == ["pair", "pair"]
    assert first.devices[0].holders[0].releasing
    assert (first.cpu_allocated_milli, first.memory_allocated_mib) == (1000, 1024)
    assert [(d.broken, d.free_milli, d.reserved_for) for d in second.devices] == [
        (True, 1000, ""),
        (False, 1000, "desk"),
    ]


def test_project_use_counts_until_the_room_is_free(state: State) -> None:
    use = state.project_use("a")
    assert (use.gpu_milli, use.gpu_borrowed_milli, use.gpu_waiting_milli) == (2000, 0, 2000)
    assert (use.running, use.waiting) == (1, 1)
    state.apply(TaskReleasing("pair", 0))
    assert state.project_use("a").gpu_milli == 2000
    state.apply(TaskReleased("pair", 0, Outcome.GONE, 20.0))
    assert state.project_use("a").gpu_milli == 0


def test_non_preemptible_use_is_counted_apart(state: State) -> None:
    state.apply(TaskPlaced("desk", 0, "n2", (1,), at=5.0))
    use = state.project_use("b")
    assert (use.gpu_fixed_milli, use.cpu_fixed_milli, use.memory_fixed_mib) == (1000, 1000, 1024)


def test_a_workload_is_told_in_full(state: State) -> None:
    state.apply(CheckpointSeen("pair", 20.0))
    view = state.workload("pair")
    assert (view.waiting, view.started_at, view.checkpoint_at) == (False, 10.0, 20.0)
    assert [(p.index, p.node, p.devices, p.releasing) for p in view.places] == [
        (0, "n1", (0, 1), False)
    ]
    assert state.workload("desk").reserved == (("n2", (1,), 0),)
    with pytest.raises(UnknownWorkload):
        state.workload("x")


def test_a_promise_ends_when_its_workload_starts_or_goes(state: State) -> None:
    state.apply(TaskPlaced("desk", 0, "n2", (0,), at=5.0))
    assert state.workload("desk").reserved == ()
    assert check(state) == []


def test_a_promise_can_be_taken_back_and_replaced(state: State) -> None:
    state.apply(CapacityReserved("desk", (("n2", (0,), 0),)))
    assert state.workload("desk").reserved == (("n2", (0,), 0),)
    state.apply(CapacityReserved("desk", ()))
    assert state.workload("desk").reserved == ()
    assert check(state) == []


def test_a_promise_ends_with_its_node(state: State) -> None:
    state.apply(NodeRemoved("n2"))
    assert state.workload("desk").reserved == ()
    state.apply(node("n0", 4))
    assert [view.name for view in state.node_views()] == ["n0", "n1"]
    assert check(state) == []


def test_an_evicted_workload_is_queued_again_and_keeps_its_checkpoint(state: State) -> None:
    state.apply(CheckpointSeen("pair", 20.0))
    state.apply(TaskReleasing("pair", 0))
    state.apply(TaskReleased("pair", 0, Outcome.GONE, 20.0))
    assert not state.workload("pair").waiting
    state.apply(training("pair", "a", 2, created_at=1.0))
    assert state.workload("pair").waiting
    assert state.workload("pair").checkpoint_at == 20.0
    assert check(state) == []


def test_a_waiting_workload_can_be_queued_with_other_wishes(state: State) -> None:
    state.apply(training("gang", "b", 2))
    assert state.project_use("a").gpu_waiting_milli == 0
    assert state.project_use("b").gpu_waiting_milli == 3000
    assert check(state) == []


def test_one_task_of_a_gang_may_end_before_the_others(state: State) -> None:
    state.apply(CapacityReserved("desk", ()))
    for index in (0, 1):
        state.apply(TaskPlaced("gang", index, "n2", (index,), at=5.0))
    state.apply(TaskReleased("gang", 0, Outcome.GONE, 20.0))
    assert check(state) == []
    assert len(state.workload("gang").places) == 1


def test_nodes_and_projects_come_and_go() -> None:
    state = State()
    for name in ("b", "c", "a"):
        state.apply(node(name, 2))
        state.apply(queue(name, 1))
    state.apply(NodeRemoved("c"))
    state.apply(QueueRemoved("c"))
    state.apply(node("d", 4))
    state.apply(queue("d", 1))
    assert [view.name for view in state.node_views()] == ["a", "b", "d"]
    assert state.projects() == ["a", "b", "d"]
    assert len(state.node_views()[2].devices) == 4
    assert check(state) == []


def test_a_node_can_grow_and_shrink_where_nothing_runs() -> None:
    state = State()
    state.apply(node("n", 2))
    state.apply(node("n", 8))
    state.apply(node("n", 3))
    assert [d.free_milli for d in state.node_views()[0].devices] == [1000] * 3
    assert check(state) == []


BORROWED: list[tuple[set[str], tuple[Event, ...]]] = [
    ({"late", "low"}, ()),
    ({"low"}, (queue("a", 3),)),
    ({"early"}, (TaskReleasing("early", 0), queue("a", 3))),
]


@pytest.mark.parametrize(("beyond", "changes"), BORROWED, ids=("order", "quota", "stopping"))
def test_who_lies_beyond_the_quota(beyond: set[str], changes: tuple[Event, ...]) -> None:
    state = State()
    workloads = (
        training("low", "a", priority=10),
        training("early", "a"),
        training("late", "a"),
        workspace("desk", "a"),
    )
    for event in (node("n", 4), queue("a", 2), *workloads):
        state.apply(event)
    for device, started in enumerate((1.0, 2.0, 3.0, 4.0)):
        state.apply(TaskPlaced(workloads[device].uid, 0, "n", (device,), at=started))
    for change in changes:
        state.apply(change)
    assert {w.uid for w in workloads if state.is_borrowed(w.uid)} == beyond


def test_room_held_for_work_that_is_gone_is_free(state: State) -> None:
    members = Group(requests=(Request(gpus=1),) * 2, min_tasks=1)
    for event in (
        training("grows", "b", gang=members),
        TaskPlaced("grows", 0, "n2", (0,), at=10.0),
        CapacityReserved("desk"),
        CapacityReserved("grows", (("n2", (1,), 0),), (1,)),
        TaskReleased("grows", 0, Outcome.GONE, 20.0),
    ):
        state.apply(event)
    assert (check(state), dict(state.reserved)) == ([], {})
    assert not state.nodes.reserved.devices.any()
