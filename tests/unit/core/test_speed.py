"""Large states are decided well below a second of processor time; the bound here is generous."""

import random
import time
from functools import cache

import pytest

from carrel_scheduler.core import State, decide
from carrel_scheduler.core.events import TaskPlaced
from unit.core.situations import node, project, training

NODES, WAITING, PROJECTS = 1000, 10_000, 20
SECONDS = 2.5
"""Several times what it takes, for slow and busy machines."""


@cache
def _state(*, full: bool) -> State:
    dice, state = random.Random(1), State()
    for number in range(NODES):
        state.apply(node(f"n{number:04}", 8))
    for number in range(PROJECTS):
        state.apply(project(f"p{number}", NODES * 8 // PROJECTS, created_at=float(number)))
    for number in range(NODES * 4 if full else 0):
        uid, place = f"r{number}", f"n{number // 4:04}"
        first = number % 4 * 2
        state.apply(training(uid, f"p{number % PROJECTS}", 2, created_at=float(number)))
        state.apply(TaskPlaced(uid, 0, place, (first, first + 1), at=float(number)))
    for number in range(WAITING):
        owner, gpus = f"p{dice.randrange(PROJECTS)}", dice.choice((1, 1, 2, 4, 8))
        cpu, age = dice.choice((1, 2, 4)), 1e6 + number
        state.apply(training(f"w{number}", owner, gpus, cpu=cpu, created_at=age))
    return state


@pytest.mark.parametrize("full", [False, True])
def test_a_thousand_nodes_and_ten_thousand_waiting(*, full: bool) -> None:
    state = _state(full=full)
    start = time.process_time()
    plan = decide(state, 2e6)
    assert time.process_time() - start < SECONDS
    assert len(plan.queue) == WAITING
    assert bool(plan.bindings) is not full
