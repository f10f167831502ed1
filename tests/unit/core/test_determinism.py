"""The same state and time give the same plan, whatever the order in which the facts arrived."""

import random

import pytest

from carrel_scheduler.core import State, decide
from carrel_scheduler.core.events import Event, NodeGone, TaskPlaced, TaskReleasing
from unit.core.situations import node, project, training, workspace


def _facts() -> list[list[Event]]:
    """Groups of events; within a group the order does not matter."""
    names = [f"n{number}" for number in range(6)]
    owners = ["a", "b", "c"]
    dice = random.Random(7)
    running = [training(f"r{n}", owners[n % 3], created_at=float(n % 4)) for n in range(14)]
    waiting = [
        training(f"w{n}", dice.choice(owners), dice.choice((0, 1, 2, 4)), tasks=dice.choice((1, 2)))
        for n in range(30)
    ]
    desks = [workspace(f"d{n}", dice.choice(owners), created_at=float(n)) for n in range(6)]
    places = [TaskPlaced(f"r{n}", 0, names[n // 4], (n % 4,), at=float(n % 3)) for n in range(14)]
    return [
        [node(name, 4) for name in names],
        [project(name, quota) for name, quota in zip(owners, (1, 6, 8), strict=True)],
        [*running, *waiting, *desks],
        list(places),
        [TaskReleasing("r3", 0), TaskReleasing("r4", 0)],
    ]


def _state(dice: random.Random, *, detour: bool) -> State:
    state = State()
    if detour:
        state.apply(node("zz-was-here", 8))
        state.apply(node("aa-was-here", 2))
        state.apply(NodeGone("zz-was-here"))
    for group in _facts():
        for event in dice.sample(group, len(group)):
            state.apply(event)
    if detour:
        state.apply(NodeGone("aa-was-here"))
    return state


@pytest.mark.parametrize("seed", range(6))
def test_equal_facts_give_equal_plans(seed: int) -> None:
    plain = decide(_state(random.Random(0), detour=False), 50.0)
    other = decide(_state(random.Random(seed), detour=bool(seed % 2)), 50.0)
    assert repr(plain) == repr(other)
    assert plain.bindings
    assert plain.evictions
    assert plain.nominations


def test_deciding_changes_nothing() -> None:
    state = _state(random.Random(0), detour=False)
    before = repr((state.version, state.node_views(), state.waiting()))
    columns = (state.nodes.free, state.nodes.releasing, state.nodes.promised)
    bytes_before = [layer.devices.tobytes() + layer.host.tobytes() for layer in columns]
    first, second = decide(state, 50.0), decide(state, 50.0)
    assert repr(first) == repr(second)
    assert repr((state.version, state.node_views(), state.waiting())) == before
    assert [layer.devices.tobytes() + layer.host.tobytes() for layer in columns] == bytes_before


def test_a_copy_decides_the_same() -> None:
    state = _state(random.Random(0), detour=True)
    assert repr(decide(state.copy(), 50.0)) == repr(decide(state, 50.0))
