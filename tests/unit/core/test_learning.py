"""What the core learns from events, and that its decisions follow it."""

import numpy as np
import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    Outcome,
    Preemptibility,
    TaskPlaced,
    TaskReleased,
    WorkloadRemoved,
)
from carrel_scheduler.core.scoring.value import FIRST
from carrel_scheduler.core.settings import Settings, Strategy
from carrel_scheduler.core.state import State
from unit.core.situations import NOW, node, queue, training, workspace


def experienced(*gpus: float, settings: Settings | None = None) -> State:
    """A node of four GPUs, and work that asked for so many GPUs and left again."""
    state = State() if settings is None else State(settings)
    state.apply(node("a", 4))
    state.apply(queue("p"))
    for number in range(FIRST):
        for each in gpus:
            state.apply(training(f"{number}-{each}", "p", each))
            state.apply(WorkloadRemoved(f"{number}-{each}"))
    return state


def hold(state: State, **device_shares: float) -> None:
    """Let shares be taken of single devices, given as ``d0=0.2``."""
    for name, share in device_shares.items():
        state.apply(training(name, "p", share))
        state.apply(TaskPlaced(name, 0, "a", (int(name[1:]),), 0.0))


def device_of(state: State) -> tuple[int, ...]:
    """Where a share of 0.3 goes."""
    state.apply(training("new", "p", 0.3))
    (binding,) = decide(state, NOW).bindings
    return binding.devices


def test_a_share_leaves_most_for_what_is_typical() -> None:
    state = experienced(0.5, 0.3)
    hold(state, d0=0.2, d1=0.5, d2=0.9, d3=0.9)
    assert device_of(state) == (0,)


def test_without_experience_a_share_takes_the_tightest_device() -> None:
    state = experienced()
    hold(state, d0=0.2, d1=0.5, d2=0.9, d3=0.9)
    assert device_of(state) == (1,)


def test_spreading_looks_at_no_values() -> None:
    state = experienced(0.5, 0.3, settings=Settings(gpu_strategy=Strategy.SPREAD))
    hold(state, d0=0.2, d1=0.5, d2=0.9, d3=0.9)
    assert device_of(state) == (1,)


@pytest.mark.parametrize("outcome", Outcome)
def test_ends_are_learned_from_unless_the_task_returns(outcome: Outcome) -> None:
    state = experienced()
    hold(state, d0=0.5)
    before = state.chooser.value.memory()
    state.apply(TaskReleased("d0", 0, outcome, 5.0))
    assert (state.chooser.value.memory() == before) == (outcome is Outcome.AGAIN)


def test_room_that_is_only_coming_is_not_judged() -> None:
    state = experienced(2, 1)
    hold(state, d0=0.5, d1=0.5, d2=0.5)
    state.apply(training("new", "p", 2))
    cls = state.jobs.get("new").shape.cls
    node_slots = np.array([state.nodes.slot("a")])
    lost = state.chooser.value.gains(cls, state.nodes.free, node_slots)
    assert lost.tolist() == [-(2**31)]


@pytest.mark.parametrize("kind", Preemptibility)
def test_whoever_starts_may_give_way_unless_protected(kind: Preemptibility) -> None:
    state = experienced()
    state.apply(training("new", "p", 1, preemptible=kind))
    cycle = Cycle(state, NOW)
    assert not cycle.has_victims
    job = state.jobs.get("new")
    place = cycle.footprint(job.shape.cls, state.nodes.slot("a"), soon=False)
    assert place is not None
    cycle.moves.start(job, 0, place, fixed=False)
    assert cycle.has_victims == (kind is not Preemptibility.NO)


def test_running_work_that_may_not_stop_is_no_victim() -> None:
    state = experienced()
    state.apply(workspace("w", "p", 1))
    state.apply(TaskPlaced("w", 0, "a", (0,), 0.0))
    assert not Cycle(state, NOW).has_victims
