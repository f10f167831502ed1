"""Bin packing: used nodes first, ties by name."""

import pytest

from carrel_scheduler.core import State, decide
from carrel_scheduler.core.events import NodeSet, TaskPlaced, WorkloadQueued
from unit.core.situations import node, queue, training, workspace


def placed(*events: object) -> list[tuple[str, int, str, tuple[int, ...]]]:
    """Where the waiting work of a situation starts."""
    state = State()
    for event in events:
        state.apply(event)  # type: ignore[arg-type]
    return [(b.uid, b.index, b.node, b.devices) for b in decide(state, 100.0).bindings]


def running(uid: str, place: str, *devices: int) -> tuple[WorkloadQueued, TaskPlaced]:
    return training(uid, "a", len(devices)), TaskPlaced(uid, 0, place, devices, at=1.0)


A = queue("a", 100)


def test_a_used_node_is_filled_before_an_empty_one() -> None:
    nodes = (node("n1", 4), node("n2", 4))
    assert placed(*nodes, A, *running("r", "n2", 0), training("x", "a")) == [("x", 0, "n2", (1,))]


def test_ties_go_by_name_whatever_came_first() -> None:
    assert placed(node("n2", 4), node("n1", 4), A, training("x", "a")) == [("x", 0, "n1", (0,))]


def test_the_tightest_node_that_fits_is_taken() -> None:
    nodes = (node("n1", 8), node("n2", 4), node("n3", 2))
    assert placed(*nodes, A, training("x", "a", 3)) == [("x", 0, "n2", (0, 1, 2))]


def test_work_without_gpus_leaves_gpu_nodes_alone() -> None:
    nodes = (node("a-gpu", 4, cpu=8), node("b-cpu", 0, cpu=64), node("c-cpu", 0, cpu=32))
    assert placed(*nodes, A, workspace("x", "a", 0)) == [("x", 0, "c-cpu", ())]


def test_a_gang_fills_node_after_node() -> None:
    nodes = (node("n1", 4), node("n2", 4))
    gang = training("g", "a", 2, tasks=3)
    assert placed(*nodes, A, *running("r", "n2", 3), gang) == [
        ("g", 0, "n2", (0, 1)),
        ("g", 1, "n1", (0, 1)),
        ("g", 2, "n1", (2, 3)),
    ]


def test_a_gang_that_does_not_fit_whole_does_not_start() -> None:
    assert placed(node("n1", 4), A, training("g", "a", 2, tasks=3)) == []


@pytest.mark.parametrize(
    "unusable",
    [
        node("n1", 2, schedulable=False),
        node("n1", 2, broken_devices=frozenset({0, 1})),
        node("n1", 2, cpu=0),
        node("n1", 2, memory_gib=0),
    ],
)
def test_nodes_without_room_are_left_out(unusable: NodeSet) -> None:
    assert placed(unusable, node("n2", 4), A, training("x", "a")) == [("x", 0, "n2", (0,))]


def test_broken_devices_are_left_out() -> None:
    broken = node("n1", 3, broken_devices=frozenset({0, 2}))
    assert placed(broken, A, training("x", "a")) == [("x", 0, "n1", (1,))]


def test_only_the_given_nodes_are_used() -> None:
    nodes = (node("n1", 4), node("n2", 4))
    only = training("x", "a", nodes=frozenset({"n2", "gone"}))
    assert placed(*nodes, A, only) == [("x", 0, "n2", (0,))]


def test_cpu_and_memory_bound_what_a_node_takes() -> None:
    nodes = (node("n1", 8, cpu=4), node("n2", 8, memory_gib=2))
    gang = training("g", "a", tasks=4, cpu=2, memory_gib=1)
    assert [place[2] for place in placed(*nodes, A, gang)] == ["n1", "n1", "n2", "n2"]
    assert placed(*nodes, A, training("g", "a", tasks=5, cpu=2, memory_gib=1)) == []


def test_what_does_not_fit_blocks_nobody() -> None:
    big = training("big", "a", 4, created_at=1.0)
    small = training("small", "a", 1, created_at=2.0)
    first = running("r", "n1", 0)
    assert placed(node("n1", 4), A, *first, big, small) == [("small", 0, "n1", (1,))]
