"""Where the tasks of one step lie: scores, room that is coming, levels, members apart."""

from collections.abc import Sequence

import numpy as np
import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.events import Event, NodeSet, TaskPlaced, TaskReleasing, WorkloadQueued
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.requests import HOST, NodeConstraint, Request
from carrel_scheduler.core.state import State
from unit.core.situations import NOW, asking, node, queue, running, state_of, training

QUEUE = queue("a")


def in_rack(name: str, rack: str, gpus: int = 2, zone: str = "z") -> NodeSet:
    labels = (("zone", zone), ("rack", rack)) if rack else ()
    return node(name, gpus, labels=labels)


def placed(
    state: State,
    uid: str = "w",
    indices: Sequence[int] | None = None,
    *,
    soon: bool = False,
    score: dict[str, int] | None = None,
) -> list[str]:
    """The nodes of these tasks, in order; empty where not all of them find one."""
    cycle, job = Cycle(state, NOW), state.job(uid)
    mine = job.pending() if indices is None else indices
    scores = None
    if score is not None:
        scores = np.zeros(len(state.nodes.schedulable), np.int64)
        for name, value in score.items():
            scores[state.nodes.slots[name]] = value
    before = len(cycle.moves.log)
    found = place(cycle, job, mine, soon=soon, score=scores)
    kept = (cycle.moves.reserved if soon else cycle.moves.started).get(uid, {})
    assert found == bool(kept)
    assert found or len(cycle.moves.log) == before
    return [state.nodes.names[kept[index].node] for index in mine] if found else []


def gang(*requests: Request, level: Level | None = None, **more: object) -> WorkloadQueued:
    return training("w", "a", gang=Group(requests=requests, level=level), **more)  # type: ignore[arg-type]


def leaving(uid: str, place_: str, *devices: int) -> list[Event]:
    """Work that was told to stop: its room is coming."""
    size = len(devices)
    return [*running(training(uid, "a", size), place_, *devices), TaskReleasing(uid, 0)]


def test_a_score_comes_before_packing_and_not_before_room() -> None:
    state = state_of(node("full", 1), node("tight", 1), node("wide", 4), QUEUE,
                     *running(training("x", "a"), "full", 0), training("w", "a"))  # fmt: skip
    assert placed(state) == ["tight"]
    assert placed(state, score={"wide": 1}) == ["wide"]
    assert placed(state, score={"full": 9, "wide": 1}) == ["wide"]


@pytest.mark.parametrize("tasks", [1, 2])
def test_among_equal_scores_room_at_once_comes_before_room_that_is_coming(tasks: int) -> None:
    work = training("w", "a", tasks=tasks)
    events = (node("a-coming", 2), node("b-free", 4), QUEUE, *leaving("x", "a-coming", 0, 1))
    state = state_of(*events, work)
    assert placed(state, soon=False) == ["b-free"] * tasks
    assert placed(state, soon=True) == ["b-free"] * tasks
    assert placed(state, soon=True, score={"a-coming": 1}) == ["a-coming"] * tasks
    assert placed(state, soon=True, score={"a-coming": 1, "b-free": 1}) == ["b-free"] * tasks


def test_what_is_not_there_yet_is_only_held() -> None:
    state = state_of(node("n", 2), QUEUE, *leaving("x", "n", 0, 1), training("w", "a", 2))
    assert placed(state, soon=False) == []
    assert placed(state, soon=True) == ["n"]


def test_members_apart_take_different_values_also_from_those_that_run() -> None:
    member = asking(1, where=NodeConstraint(apart="rack"))
    state = state_of(
        *(in_rack("n1", "r1"), in_rack("n2", "r1"), in_rack("n3", "r2"), in_rack("n4", "r3")),
        *(in_rack("loose", ""), QUEUE, gang(member, member, member)),
        TaskPlaced("w", 0, "n3", (0,), 1.0),
    )
    assert sorted(placed(state, indices=[1, 2])) == ["n1", "n4"]
    state.apply(training("five", "a", gang=Group(requests=(member,) * 4)))
    assert placed(state, "five") == []


def test_members_apart_by_host_need_as_many_nodes() -> None:
    member = asking(1, where=NodeConstraint(apart=HOST))
    state = state_of(node("n1", 4), node("n2", 4), QUEUE, gang(member, member))
    assert sorted(placed(state)) == ["n1", "n2"]
    state.apply(training("three", "a", gang=Group(requests=(member,) * 3)))
    assert placed(state, "three") == []


def test_a_score_orders_the_nodes_of_members_apart() -> None:
    member = asking(1, where=NodeConstraint(apart=HOST))
    state = state_of(node("n1", 4), node("n2", 4), node("n3", 4), QUEUE, gang(member, member))
    assert placed(state, score={"n3": 2, "n2": 1}) == ["n3", "n2"]


def test_a_required_level_holds_unlike_tasks_by_their_sums() -> None:
    """Rack `r1` has the GPUs but not the cores; `r2` has both."""
    one, other = asking(1, cpu=40), asking(2, cpu=30)
    state = state_of(
        node("n1", 4, cpu=64, labels=(("rack", "r1"),)),
        node("n2", 2, cpu=32, labels=(("rack", "r2"),)),
        node("n3", 1, cpu=40, labels=(("rack", "r2"),)),
        *(QUEUE, gang(one, other, level=Level(required="rack"))),
    )
    assert placed(state) == ["n3", "n2"]


@pytest.mark.parametrize(("taken", "where"), [(0, ["n1", "n2"]), (1, [])])
def test_a_required_level_is_kept_by_tasks_that_come_later(taken: int, where: list[str]) -> None:
    member = asking(1)
    full = running(training("x", "a"), "n2", 0) if taken else ()
    state = state_of(
        *(in_rack("n1", "r1", 1), in_rack("n2", "r1", 1), in_rack("n3", "r2", 4)),
        *(QUEUE, *full, gang(member, member, level=Level(required="rack"))),
        TaskPlaced("w", 0, "n1", (0,), 1.0),
    )
    assert placed(state, indices=[1]) == where[1:]


def test_a_preferred_level_gathers_where_it_can_and_gives_way_where_not() -> None:
    nodes = [in_rack(f"n{k}", f"r{k // 2}", 1) for k in range(4)]
    wide = Level(required="zone", preferred="rack")
    state = state_of(*nodes, QUEUE, gang(asking(1), asking(1), level=wide))
    assert placed(state) in (["n0", "n1"], ["n2", "n3"])
    state.apply(training("three", "a", gang=Group(requests=(asking(1),) * 3, level=wide)))
    first, second, third = placed(state, "three")
    assert {first, second} in ({"n0", "n1"}, {"n2", "n3"})
    assert third not in (first, second)


def test_all_or_nothing() -> None:
    state = state_of(node("n1", 2), node("n2", 2), QUEUE, training("w", "a", 2, tasks=3))
    assert placed(state) == []
    assert placed(state, indices=[0, 1]) == ["n1", "n2"]
