"""Who moves so that something larger fits, and from where."""

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import CheckpointSeen, Event, TaskPlaced
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import NodeConstraint
from carrel_scheduler.core.settings import Settings
from unit.core.invariants.evictions import check_plan
from unit.core.situations import (
    asking,
    node,
    queue,
    running,
    searches_made,
    state_of,
    training,
    workspace,
)

NOW = 1000.0
Found = tuple[dict[str, str], str]


def decided(*events: Event, consolidate: bool = True) -> Found:
    """Who moves where, and the node of `big`; empty where it gets none."""
    settings = Settings(reservation_delay_s=-1.0, consolidate=consolidate)
    state = state_of(*events, settings=settings)
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    assert all(one.moved and one.reason.token is Token.CONSOLIDATED for one in plan.evictions)
    held = {one.uid: one.places[0][0] for one in plan.nominations}
    place = held.pop("big", "")
    assert set(held) == {one.uid for one in plan.evictions}
    return held, place


def small(uid: str, place: str, device: int, *, at: float = 1.0, **more: object) -> list[Event]:
    return list(running(training(uid, "a", **more), place, device, at=at))  # type: ignore[arg-type]


BIG = training("big", "a", 4)


def test_of_nodes_that_lack_something_the_one_with_most_room_is_cleared() -> None:
    """`a1` lacks two GPUs, `z1` one; both could be cleared."""
    moved, place = decided(
        *(node("a1", 4), node("z1", 4), node("spare", 3), queue("a", 16)),
        *(*small("x", "a1", 0), *small("y", "a1", 1), *small("z", "z1", 0)),
        BIG,
    )
    assert (list(moved), place) == (["z"], "z1")


def test_of_equal_nodes_the_first_by_name_is_cleared() -> None:
    moved, place = decided(
        *(node("z1", 4), node("a1", 4), node("spare", 3), queue("a", 16)),
        *(*small("x", "a1", 0), *small("z", "z1", 0)),
        BIG,
    )
    assert (list(moved), place) == (["x"], "a1")


def test_of_devices_those_are_cleared_that_lose_least() -> None:
    """Three of the four are needed; `old` has worked longest since its last checkpoint."""
    events = (
        *(node("n", 4), node("spare", 2), queue("a", 16)),
        *(*small("old", "n", 0, at=1.0), *small("new", "n", 1, at=900.0)),
        *small("saved", "n", 2, at=1.0),
        CheckpointSeen("saved", 990.0),
    )
    wide = training("big", "a", 3, nodes=["n"])
    assert decided(*events, wide) == ({"new": "spare", "saved": "spare"}, "n")


def test_a_task_on_several_devices_counts_once_and_frees_all_of_them() -> None:
    pair = running(training("pair", "a", 2), "n", 0, 1, at=500.0)
    events = (node("n", 4), node("spare", 4), queue("a", 16), *pair, *small("one", "n", 2, at=1.0))
    wide = training("big", "a", 3, nodes=["n"])
    assert decided(*events, wide) == ({"pair": "spare"}, "n")


def test_a_device_is_not_whole_while_others_than_a_task_on_several_are_on_it() -> None:
    """`both` has a half of each; who has the other half of `n`'s second GPU moves as well."""
    halves = training("both", "a", request=asking(0, share_milli=500, devices=2))
    events = (
        *(node("n", 2), node("spare", 2), queue("a", 16)),
        *running(halves, "n", 0, 1, at=500.0),
        *running(training("first", "a", 0.5), "n", 0, at=900.0),
        *running(training("second", "a", 0.5), "n", 1, at=1.0),
    )
    held, place = decided(*events, training("big", "a", 2, nodes=["n"]))
    assert (held, place) == ({"both": "spare", "first": "spare", "second": "spare"}, "n")


@pytest.mark.parametrize(("began", "moved"), [(985.0, ["half"]), (1.0, ["less", "more"])])
def test_for_a_share_the_device_is_eased_that_loses_least(began: float, moved: list[str]) -> None:
    shares = [
        *running(training("half", "a", 0.5), "n", 0, at=began),
        *running(training("more", "a", 0.6), "n", 1, at=900.0),
        *running(training("less", "a", 0.4), "n", 1, at=990.0),
    ]
    part = training("big", "a", 0.6, nodes=["n"])
    events = (node("n", 2), node("spare", 2), queue("a", 16), *shares)
    held, place = decided(*events, part)
    assert (sorted(held), place) == (moved, "n")


@pytest.mark.parametrize(("short", "moved"), [(0, []), (1, ["late"]), (4001, ["early", "late"])])
def test_for_cpu_so_many_move_as_are_needed_and_no_more(short: int, moved: list[str]) -> None:
    """Four cores each; those who lose least go first."""
    events = (
        *(node("n", 4, cpu=16), node("spare", 2, cpu=64), queue("a", 16)),
        *(*small("early", "n", 0, at=1.0, cpu=4), *small("late", "n", 1, at=900.0, cpu=4)),
    )
    wants = asking(2, cpu=0, cpu_milli=8000 + short, where=NodeConstraint(nodes=frozenset({"n"})))
    held, place = decided(*events, training("big", "a", request=wants))
    assert sorted(held) == moved
    assert place == ("n" if moved else "")


def test_what_may_not_be_stopped_or_is_used_by_a_person_stays() -> None:
    for stays in (workspace("w", "a"), training("w", "a", interactive=True)):
        events = (node("n", 4), node("m", 4), node("spare", 2), queue("a", 16))
        there = (*running(stays, "m", 0), *small("x", "n", 0), *small("y", "n", 1))
        assert decided(*events, *there, BIG) == ({"x": "spare", "y": "spare"}, "n")


def test_nothing_moves_when_one_of_them_would_have_no_place() -> None:
    events = (node("n", 4), node("spare", 1), queue("a", 16))
    assert decided(*events, *small("x", "n", 0), *small("y", "n", 1), BIG) == ({}, "")


def test_the_largest_is_placed_first() -> None:
    """Only `wide` fits on the pair of free GPUs, and only if `one` does not come before it."""
    wide = running(training("wide", "a", 2), "n", 1, 2)
    events = (node("n", 4), node("pair", 2), node("single", 1), queue("a", 16))
    found = decided(*events, *small("one", "n", 0), *wide, training("big", "a", 4, nodes=["n"]))
    assert found == ({"wide": "pair", "one": "single"}, "n")


def test_a_gang_gets_a_place_for_each_task() -> None:
    events = (
        *(node("n1", 4), node("n2", 4), node("spare", 2), queue("a", 16)),
        *(*small("x", "n1", 0), *small("y", "n2", 0)),
        training("big", "a", 4, tasks=2),
    )
    held, place = decided(*events)
    assert (held, place) == ({"x": "spare", "y": "spare"}, "n1")


def test_of_two_who_move_for_a_gang_one_can_lie_on_one_node_only() -> None:
    """`n1` and `n2` lack least, but `x` and `y` may lie only there or on the one spare GPU."""
    near = ["n1", "n2", "spare"]
    events = (
        *(node("n1", 4), node("n2", 4), node("n3", 5), node("spare", 1), node("far", 2)),
        queue("a", 32),
        *(*small("x", "n1", 0, nodes=near), *small("y", "n2", 0, nodes=near)),
        *(*small("v", "n3", 0), *small("w", "n3", 1)),
        training("big", "a", 4, tasks=2, nodes=["n1", "n2", "n3"]),
    )
    held, place = decided(*events)
    assert (held, place) == ({"x": "spare", "v": "far"}, "n1")


def test_many_equal_ones_move_as_they_would_one_by_one() -> None:
    """Eight of them: the node with least room first, and each is filled."""
    events = (
        *(node(f"n{number}", 4) for number in range(4)),
        *(node("a", 1), node("b", 3), node("c", 5), queue("a", 32)),
        *(one for n in range(4) for d in range(2) for one in small(f"x{n}{d}", f"n{n}", d)),
        training("big", "a", 4, tasks=4, nodes=["n0", "n1", "n2", "n3"]),
    )
    held, _ = decided(*events)
    assert sorted(held.values()) == ["a", *["b"] * 3, *["c"] * 4]


def test_nothing_moves_where_that_is_switched_off() -> None:
    events = (node("n", 4), node("m", 4), queue("a", 16), *small("x", "n", 0), *small("y", "m", 0))
    assert decided(*events, BIG, consolidate=False) == ({}, "")
    held, _ = decided(*events, BIG)
    assert held == {"y": "n"}


def test_who_waits_for_its_delay_moves_nobody() -> None:
    late = training("big", "a", 4, preemption_delay_s=NOW + 1)
    events = (node("n", 4), node("m", 4), queue("a", 16), *small("x", "n", 0), *small("y", "m", 0))
    assert decided(*events, late) == ({}, "")


def test_members_that_lie_by_each_other_do_not_move() -> None:
    apart = training(
        "x", "a", tasks=2, request=asking(1, where=NodeConstraint(apart="kubernetes.io/host"))
    )
    there = (apart, TaskPlaced("x", 0, "n", (0,), 1.0), TaskPlaced("x", 1, "m", (0,), 1.0))
    events = (node("n", 4), node("m", 4), node("spare", 2), queue("a", 16))
    assert decided(*events, *there, BIG) == ({}, "")


def test_a_share_moves_to_another_device_of_the_same_node() -> None:
    """All GPUs of the only node are in use, but two shares fit on one of them."""
    halves = [*small_share("x", 1), *small_share("y", 2)]
    fixed = running(workspace("fixed", "a", 1), "n", 0)
    events = (node("n", 3), queue("a", 2), queue("b", 1), *fixed, *halves)
    moved, place = decided(*events, workspace("big", "b", 1))
    assert (list(moved.values()), place) == (["n"], "n")


def small_share(uid: str, device: int) -> list[Event]:
    return list(running(training(uid, "a", 0.5), "n", device))


def test_a_cycle_does_not_repeat_a_search_while_nothing_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both turns of consolidate ask for `big`, after more starts than are compared with others."""
    made = searches_made(monkeypatch, "consolidate")
    halves = [one for name in ("m0", "m1") for one in running(workspace(name, "a"), name, 0)]
    state = state_of(
        *(node("n", 60, cpu=200), node("m0", 2), node("m1", 2), queue("a"), *halves),
        *(training(f"new{number}", "a", nodes=["n"]) for number in range(60)),
        training("big", "a", 2, nodes=["m0", "m1"]),
    )
    plan = decide(state, NOW)
    assert len(plan.bindings) == 60
    assert made == ["big"]


def test_who_is_beyond_its_fair_share_is_helped_by_moves_after_all_others() -> None:
    """The first turn of consolidate passes it over, and so the second asks again."""
    halves = [one for name in ("m0", "m1") for one in running(training(name, "a"), name, 0)]
    state = state_of(
        *(node("m0", 2), node("m1", 2), queue("a", 4), queue("b", 0), *halves),
        *(training("elsewhere", "a", 2, nodes=["m2"]), training("big", "b", 2)),
    )
    plan = decide(state, NOW)
    assert [(e.uid, e.moved, e.reason.workload_uid) for e in plan.evictions] == [
        ("m0", True, "big")
    ]
    assert "big" in [held.uid for held in plan.nominations]
