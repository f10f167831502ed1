"""Room that is taken back for gangs that keep apart, lie together, or hold unlike tasks."""

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Event, TopologySet
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.requests import HOST, NodeConstraint, Request
from carrel_scheduler.core.state import State
from unit.core.situations import NOW, asking, node, queue, running, state_of, training

NODES = 6


def full_cluster(*more: Event) -> State:
    """Six nodes of two GPUs in three racks, every GPU with work of `a`, which has no quota."""
    events: list[Event] = [
        TopologySet("t", ("rack",)),
        *(node(f"n{n}", 2, labels=(("rack", f"r{n // 2}"),)) for n in range(NODES)),
        queue("a", 0),
        queue("b", 2 * NODES),
    ]
    for n in range(2 * NODES):
        job = training(f"v{n:02}", "a", created_at=float(n))
        events += running(job, f"n{n // 2}", n % 2, at=50.0)
    return state_of(*events, *more)


def claimed(gang: Group) -> tuple[list[str], list[str], int]:
    """Nodes held for it, racks of these, and how many give way."""
    state = full_cluster(training("w", "b", gang=gang))
    plan = decide(state, NOW)
    (held,) = [one for one in plan.nominations if one.uid == "w"]
    names = [place[0] for place in held.places]
    racks = [dict(state.nodes.fact(state.nodes.slot(name)).labels)["rack"] for name in names]
    victims = sum(len(one.indices) or 1 for one in plan.evictions)
    return sorted(names), sorted(racks), victims


def request(apart: str = "", gpus: int = 1) -> Request:
    return asking(gpus, where=NodeConstraint(apart=apart))


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 6])
def test_apart_on_hosts(tasks: int) -> None:
    names, _, victims = claimed(Group(requests=(request(HOST),) * tasks))
    assert len(set(names)) == tasks == victims


@pytest.mark.parametrize("tasks", [2, 3])
def test_apart_in_racks(tasks: int) -> None:
    _, racks, victims = claimed(Group(requests=(request("rack"),) * tasks))
    assert len(set(racks)) == tasks == victims


@pytest.mark.parametrize(("tasks", "racks"), [(2, 1), (3, 1), (4, 1)])
def test_together_in_a_rack(tasks: int, racks: int) -> None:
    gang = Group(requests=(request(),) * tasks, level=Level(required="rack"))
    names, found, victims = claimed(gang)
    assert len(set(found)) == racks
    assert victims == tasks == len(names)


def test_anywhere_as_few_as_needed() -> None:
    for tasks in (1, 4, 7, 12):
        names, _, victims = claimed(Group(requests=(request(),) * tasks))
        assert len(names) == victims == tasks


def test_unlike_tasks() -> None:
    names, _, victims = claimed(Group(requests=(request(gpus=2), request(gpus=1), request())))
    assert victims == 4
    assert len(names) == 3


def test_some_apart_and_others_not() -> None:
    gang = Group(requests=(request(HOST), request(HOST), request()))
    names, _, victims = claimed(gang)
    assert victims == 3
    assert len(set(names)) >= 2


def test_nothing_is_taken_for_what_cannot_be() -> None:
    state = full_cluster(
        training("w", "b", gang=Group(requests=(request(HOST),) * 7)),
        training("x", "b", gang=Group(requests=(request(),) * 5, level=Level(required="rack"))),
        training("y", "b", gang=Group(requests=(request("rack"),) * 4)),
    )
    plan = decide(state, NOW)
    assert not plan.evictions
    assert not plan.nominations
