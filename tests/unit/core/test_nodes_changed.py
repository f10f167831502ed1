"""Nodes that change while work runs: what is free, what is there, and who may use it."""

import numpy as np
import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import NodeRemoved, TaskPlaced, TaskReleased
from carrel_scheduler.core.events import Outcome as Out
from carrel_scheduler.core.invariants.columns import check_books
from carrel_scheduler.core.messages.render import sentence
from carrel_scheduler.core.speculation import never
from unit.core.situations import NOW, asking, node, queue, running, state_of, training


def test_a_node_that_loses_devices_has_less_room() -> None:
    state = state_of(node("n", 4), node("m", 2), queue("a"), *running(training("x", "a"), "n", 0))
    state.apply(node("n", 2, cpu=8))
    slot = state.nodes.slot("n")
    assert state.nodes.free.devices[:, slot].tolist() == [0, 1000, 0, 0]
    assert state.nodes.free.host[:2, slot].tolist() == [7000, 255 * 1024]
    assert check_books(state) == []
    state.apply(training("y", "a", 2))
    assert {one.node for one in decide(state, NOW).bindings} == {"m"}
    with pytest.raises(InvalidEvent):
        state.apply(node("n", 0))


def test_a_node_that_gains_devices_has_more() -> None:
    state = state_of(node("n", 1), queue("a"), *running(training("x", "a"), "n", 0))
    state.apply(training("y", "a", 2))
    assert not decide(state, NOW).bindings
    state.apply(node("n", 3))
    assert [(one.node, one.devices) for one in decide(state, NOW).bindings] == [("n", (1, 2))]
    assert check_books(state) == []


def test_a_slot_is_used_again_after_its_node_is_gone() -> None:
    state = state_of(node("n", 4, gpu_memory_mib=80), node("m", 1), queue("a"))
    slot = state.nodes.slot("n")
    state.apply(NodeRemoved("n"))
    assert not np.any(state.nodes.free.devices[:, slot])
    assert not np.any(state.nodes.free.host[:, slot])
    state.apply(node("o", 2))
    assert state.nodes.slot("o") == slot
    assert state.nodes.free.devices[:, slot].tolist() == [1000, 1000, 0, 0]
    assert int(state.nodes.gpu_memory[slot]) == 0
    assert check_books(state) == []


def test_many_nodes_and_many_devices_keep_what_was_there() -> None:
    state = state_of(queue("a"), node("n00", 2), *running(training("x", "a"), "n00", 1))
    for number in range(1, 40):
        state.apply(node(f"n{number:02}", number % 9, extended=((f"x{number % 5}", number),)))
        assert check_books(state) == []
    there = state.nodes.free.devices[:, state.nodes.slot("n00")]
    assert there[:2].tolist() == [1000, 0]
    assert not there[2:].any()
    ranks = [int(state.nodes.rank[state.nodes.slot(f"n{number:02}")]) for number in range(40)]
    assert ranks == sorted(ranks)


def test_what_tasks_hold_on_a_node_that_was_not_found_counts_until_they_end() -> None:
    """Nothing of the node is known but what was recorded there, see ``engines.core_state``."""
    state = state_of(
        *(node("n", 4, cpu=8), queue("a"), training("x", "a", cpu=4)),
        node("lost", 1, cpu=0, memory_gib=0, schedulable=False, broken_devices=frozenset({0})),
    )
    assert state.nodes.total(state.tasks.counted_on)[:2] == (4000, 8000)
    state.apply(TaskPlaced("x", 0, "lost", (0,), NOW))
    assert state.nodes.total(state.tasks.counted_on)[:2] == (4000, 12_000)
    state.apply(TaskReleased("x", 0, Out.GONE, NOW))
    assert state.nodes.total(state.tasks.counted_on)[:2] == (4000, 8000)


def test_a_broken_device_is_not_given_to_anybody() -> None:
    broken = node("n", 2, broken_devices=frozenset({0}))
    state = state_of(broken, queue("a"), training("x", "a"), training("y", "a"))
    assert [(one.uid, one.devices) for one in decide(state, NOW).bindings] == [("x", (1,))]
    state.apply(TaskPlaced("x", 0, "n", (1,), NOW))
    state.apply(node("n", 2))
    assert [(one.uid, one.devices) for one in decide(state, NOW).bindings] == [("y", (0,))]
    state.apply(TaskReleased("x", 0, Out.SUCCEEDED, NOW))
    assert check_books(state) == []


@pytest.mark.parametrize(
    ("request_", "expected", "told"),
    [
        (
            {"gpu_memory_mib": 50_176},
            ("gpu_memory", 50_176, 40_960),
            "49 GiB of GPU memory",
        ),
        (
            {"gpu_memory_mib": 20_000, "devices": 5},
            ("gpu", 5000, 4000),
            "5 GPUs",
        ),
        ({"share_milli": 500, "devices": 5}, ("gpu", 5000, 4000), "5 GPUs"),
        ({"share_milli": 1, "devices": 8}, ("gpu", 8000, 4000), "8 GPUs"),
    ],
)
def test_what_no_node_could_give_is_told_in_its_own_measure(
    request_: dict[str, int], expected: tuple[str, int, int], told: str
) -> None:
    state = state_of(node("n", 4, gpu_memory_mib=40_960), node("m", 2), queue("a"))
    found = never(state, training("w", "a", request=asking(0, **({"share_milli": 0} | request_))))
    assert found is not None
    assert (found.resource, found.requested, found.bound) == expected
    assert found.short == found.requested - found.bound
    assert sentence(found, "a").startswith(f"It asks for {told}, and the nodes it may use could")
