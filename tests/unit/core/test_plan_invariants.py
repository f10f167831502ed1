"""Each invariant over a plan speaks up for the plan that breaks it, and for no other.

The plans here are written by hand; every case names all the invariants that must complain, so that
a careless one is found as well as a blind one. A twin that is just allowed stands beside most.
"""

from typing import Any

import pytest

from carrel_scheduler.core.events import (
    CapacityReserved,
    Event,
    Preemptibility,
    TaskPlaced,
    TaskReleasing,
    TopologySet,
)
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.plan import Binding, Eviction, Nomination
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import HOST, NodeConstraint
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from unit.core.said_plans import ROOM, WAITS, complaints, full, hold, start, stop
from unit.core.situations import (
    NOW,
    asking,
    node,
    queue,
    running,
    training,
    workspace,
)

MIG = "NVIDIA-A100-SXM4-40GB"


CLUSTER: list[Event] = [
    node("n1", 2, cpu=4, memory_gib=8),
    node("n2", 2, cpu=4, memory_gib=8, draining=True),
    queue("top", 4, limit=4),
    queue("a", 1, parent="top"),
    queue("b", 2, parent="top", limit=2, over_quota=False),
    queue("c", 0),
]


def test_a_plan_that_does_nothing_breaks_nothing() -> None:
    assert complaints([*CLUSTER, *running(training("x", "a"), "n1", 0), training("y", "b")]) == []


@pytest.mark.parametrize(
    ("more", "binding", "expected"),
    [
        ([], start("y", "n1", 1), []),
        ([], start("y", "n1", 0), ["bindings_take_free_room"]),
        ([training("z", "a", cpu=3, memory_gib=7)], start("z", "n1", 1), []),
        ([training("z", "a", cpu=3.001)], start("z", "n1", 1), ["bindings_take_free_room"]),
        ([training("z", "a", memory_gib=7.5)], start("z", "n1", 1), ["bindings_take_free_room"]),
        ([], start("y", "n2", 1), ["node_conditions_respected"]),
        (
            [node("n3", 2, broken_devices=frozenset({1}))],
            start("y", "n3", 1),
            ["bindings_take_free_room"],
        ),
        ([], start("x", "n1", 1), ["nothing_starts_twice"]),
    ],
)
def test_starts_need_free_room(more: list[Event], binding: Binding, expected: list[str]) -> None:
    base = [*CLUSTER, *running(training("x", "a"), "n1", 0), training("y", "b")]
    assert complaints([*base, *more], bindings=[binding]) == expected


def test_two_starts_share_what_is_free() -> None:
    events = [*CLUSTER, training("x", "a", 0.5), training("y", "b", 0.5), training("z", "b", 0.6)]
    fine = [start("x", "n1", 0), start("y", "n1", 0)]
    assert complaints(events, bindings=fine) == []
    assert complaints(events, bindings=[start("x", "n1", 0), start("z", "n1", 0)]) == [
        "bindings_take_free_room"
    ]
    assert complaints(events, bindings=[fine[0], fine[0]]) == ["nothing_starts_twice"]


def test_room_that_is_promised_is_left_alone() -> None:
    """Device 0 is being freed for `x`, device 1 is free; a start on it leaves enough, or not."""
    events: list[Event] = [
        *CLUSTER,
        *running(training("v", "a"), "n1", 0),
        TaskReleasing("v", 0),
        training("x", "b"),
        CapacityReserved("x", (("n1", (0,), 0),)),
        training("y", "b"),
    ]
    assert complaints(events, bindings=[start("y", "n1", 1)]) == []
    taken = [*events, CapacityReserved("x", (("n1", (1,), 0),))]
    assert complaints(taken, bindings=[start("y", "n1", 1)]) == ["holds_are_honoured"]
    assert complaints(taken, bindings=[start("x", "n1", 1)]) == []
    late = [*events, training("w", "b")]
    claim = stop("y", Token.RECLAIMED, "w")
    assert "holds_are_honoured" in complaints(
        [*late, TaskPlaced("y", 0, "n1", (1,), 1.0)],
        evictions=[claim],
        nominations=[hold("w", "n1", 0)],
    )


@pytest.mark.parametrize(
    ("waiting", "fine"),
    [
        (training("y", "a", 2), True),
        (workspace("y", "a", 1), True),
        (workspace("y", "a", 2), False),
        (training("y", "b", 2), True),
        (training("y", "b", 3), False),
        (training("y", "c", 2), True),
        (workspace("y", "c", 1), False),
        (workspace("y", "c", 0), True),
    ],
)
def test_starts_stay_within_quotas_and_limits(waiting: Any, fine: bool) -> None:
    gpus = waiting.request.gpus
    events = [*CLUSTER, node("n3", 8), waiting]
    found = complaints(events, bindings=[start("y", "n3", *range(gpus))])
    assert found == ([] if fine else ["starts_keep_to_rules"])


def test_limits_and_quotas_count_what_runs_and_what_is_held() -> None:
    base = [*CLUSTER, node("n3", 8), *running(training("v", "a", 3), "n3", 0, 1, 2)]
    one, two = training("y", "b", 1), training("y", "b", 2)
    assert complaints([*base, one], bindings=[start("y", "n3", 3)]) == []
    broken = ["starts_keep_to_rules"]
    assert complaints([*base, two], bindings=[start("y", "n3", 3, 4)]) == broken
    assert complaints([*base, two], nominations=[hold("y", "n3", 3, 4)]) == broken
    stopping = [*base, TaskReleasing("v", 0), two]
    assert complaints(stopping, bindings=[start("y", "n3", 3, 4)]) == []
    processors = ResourceVector(UNLIMITED, 2000, UNLIMITED)
    small = [*CLUSTER, node("n3", 8), queue("d", 9, limit=9)]
    bounded = [*small, queue("e", 9), training("y", "e", 0, cpu=2), training("z", "e", 0, cpu=1)]
    bounded.append(queue("e", 9).__class__("e", processors, processors))
    assert complaints(bounded, bindings=[start("y", "n3")]) == []
    assert complaints(bounded, bindings=[start("y", "n3"), start("z", "n3")]) == broken


def test_gangs_start_whole() -> None:
    gang = training("g", "c", gang=Group(requests=(asking(1),) * 3, min_tasks=2))
    events = [*CLUSTER, node("n3", 4), gang]
    two = [start("g", "n3", 0), start("g", "n3", 1, index=1)]
    assert complaints(events, bindings=two) == []
    assert complaints(events, bindings=two[:1]) == ["gangs_start_whole"]
    assert complaints(events, nominations=[hold("g", "n3", 0)]) == ["gangs_start_whole"]
    parts = Group(groups=(Group(requests=(asking(1),) * 2), Group(requests=(asking(1),) * 2)),
                  min_groups=1)  # fmt: skip
    nested = [*CLUSTER, node("n3", 4), training("g", "c", gang=parts)]
    assert complaints(nested, bindings=two) == []
    third = [*two, start("g", "n3", 2, index=2)]
    assert complaints(nested, bindings=third) == ["gangs_start_whole"]
    grown = [*events, TaskPlaced("g", 0, "n3", (0,), 1.0), TaskPlaced("g", 1, "n3", (1,), 1.0)]
    assert complaints(grown, bindings=[start("g", "n3", 2, index=2)]) == []


def test_a_required_level_holds_the_gang_together() -> None:
    racks: list[Event] = [
        TopologySet("t", ("zone", "rack")),
        *(
            node(f"r{n}", 2, labels=(("zone", f"z{n // 2}"), ("rack", f"k{n % 2}")))
            for n in range(3)
        ),
        node("r3", 2, labels=(("zone", "z0"),)),
        queue("c", 0),
    ]
    pair = Group(requests=(asking(1),) * 2, level=Level(required="rack"))
    events = [*racks, training("g", "c", gang=pair)]

    def lying(one: str, other: str) -> list[str]:
        return complaints(events, bindings=[start("g", one, 0), start("g", other, 1, index=1)])

    assert lying("r0", "r0") == []
    for other in ("r1", "r2", "r3"):
        assert lying("r0", other) == ["required_topology_respected"]
    assert lying("r3", "r3") == ["required_topology_respected"]
    outer = Group(groups=(pair, pair), level=Level(required="zone"))
    whole: list[Event] = [*racks, training("g", "c", gang=outer)]
    places = [start("g", "r0", 0), start("g", "r0", 1, index=1)]
    near = [start("g", "r1", 0, index=2), start("g", "r1", 1, index=3)]
    far = [start("g", "r2", 0, index=2), start("g", "r2", 1, index=3)]
    assert complaints(whole, bindings=places + near) == []
    assert complaints(whole, bindings=places + far) == ["required_topology_respected"]
    split = [start("g", "r0", 0, index=2), start("g", "r1", 1, index=3)]
    assert "required_topology_respected" in complaints(whole, bindings=places + split)


def test_members_that_keep_apart() -> None:
    apart = asking(1, where=NodeConstraint(apart=HOST))
    mixed = Group(requests=(apart, apart, asking(1)))
    events = [*CLUSTER, node("n3", 2), node("n4", 2), training("g", "c", gang=mixed)]
    third = start("g", "n3", 1, index=2)
    fine = [start("g", "n3", 0), start("g", "n4", 0, index=1), third]
    assert complaints(events, bindings=fine) == []
    close = [start("g", "n4", 1), start("g", "n4", 0, index=1), third]
    assert complaints(events, bindings=close) == ["members_apart"]


@pytest.mark.parametrize(
    ("fact", "request_", "fine"),
    [
        ({}, {}, True),
        ({"schedulable": False}, {}, False),
        ({"draining": True}, {}, False),
        ({}, {"where": NodeConstraint(nodes=frozenset({"m"}))}, True),
        ({}, {"where": NodeConstraint(nodes=frozenset({"o"}))}, False),
        (
            {"labels": (("k", "v"),)},
            {"where": NodeConstraint(labels=(("k", frozenset({"v"})),))},
            True,
        ),
        (
            {"labels": (("k", "w"),)},
            {"where": NodeConstraint(labels=(("k", frozenset({"v"})),))},
            False,
        ),
        ({"taints": ("t=1",)}, {}, False),
        ({"taints": ("t=1",)}, {"where": NodeConstraint(tolerations=frozenset({"t"}))}, True),
        ({"taints": ("t=1",)}, {"where": NodeConstraint(tolerations=frozenset({"t=1"}))}, True),
        ({"taints": ("t=1", "u")}, {"where": NodeConstraint(tolerations=frozenset({"t"}))}, False),
        ({"taints": ("t=1", "u")}, {"where": NodeConstraint(tolerations=frozenset({"*"}))}, True),
    ],
)
def test_conditions_of_nodes(fact: dict[str, Any], request_: dict[str, Any], fine: bool) -> None:
    events: list[Event] = [
        node("m", 2, **fact),
        queue("c"),
        training("x", "c", request=asking(1, **request_)),
    ]
    found = complaints(events, bindings=[start("x", "m", 0)])
    assert found == ([] if fine else ["node_conditions_respected"])


@pytest.mark.parametrize(
    ("events", "eviction", "expected"),
    [
        (full(), stop("v", Token.RECLAIMED, "w"), []),
        (full(project="b"), stop("v", Token.PREEMPTED, "w"), []),
        (
            full(preemptible=Preemptibility.NO),
            stop("v", Token.RECLAIMED, "w"),
            ["protected_are_no_victims"],
        ),
        (full(), stop("v", Token.PREEMPTED, "w"), ["preempted_are_of_lower_priority"]),
        (
            full(project="b", priority=60),
            stop("v", Token.PREEMPTED, "w"),
            ["preempted_are_of_lower_priority"],
        ),
        (
            full(project="b"),
            stop("v", Token.RECLAIMED, "w"),
            ["nobody_within_quota_is_reclaimed"],
        ),
        (
            [*full(), queue("a", 2)],
            stop("v", Token.RECLAIMED, "w"),
            ["nobody_within_quota_is_reclaimed"],
        ),
        ([*full(), queue("a", 2, limit=1)], stop("v", Token.RECLAIMED, "w"), []),
        ([*full(), queue("a", limit=1)], stop("v", Token.RECLAIMED, "w"), []),
        (
            [*full(), queue("a", limit=2)],
            stop("v", Token.RECLAIMED, "w"),
            ["nobody_within_quota_is_reclaimed"],
        ),
        ([*full(), queue("a", 1, reclaim_min_runtime_s=NOW - 1)],
         stop("v", Token.RECLAIMED, "w"), []),
        (
            [*full(), queue("a", 1, reclaim_min_runtime_s=NOW)],
            stop("v", Token.RECLAIMED, "w"),
            ["minimum_run_times_respected"],
        ),
        ([*full(), queue("a", 1, preempt_min_runtime_s=NOW)],
         stop("v", Token.RECLAIMED, "w"), []),
        (
            [*full(project="b"), queue("b", 2, preempt_min_runtime_s=NOW)],
            stop("v", Token.PREEMPTED, "w"),
            ["minimum_run_times_respected"],
        ),
        ([*full(), TaskReleasing("v", 0)], stop("v", Token.RECLAIMED, "w", 0), None),
        (full(), stop("w", Token.RECLAIMED, "w"), None),
    ],
)  # fmt: skip
def test_who_may_give_way(
    events: list[Event], eviction: Eviction, expected: list[str] | None
) -> None:
    found = complaints(events, evictions=[eviction], nominations=ROOM)
    assert "victims_run" in found if expected is None else found == expected


def test_somebody_profits_from_every_eviction() -> None:
    reclaimed = stop("v", Token.RECLAIMED, "w")
    preempted = stop("v", Token.PREEMPTED, "w")
    found = complaints(full(project="b"), evictions=[preempted])
    assert found == ["victims_have_a_beneficiary"]
    assert "victims_run" in complaints(full(), evictions=[reclaimed, reclaimed], nominations=ROOM)
    drained = stop("v", Token.NODE_DRAINED)
    assert complaints(full(preemptible=Preemptibility.NO), evictions=[drained]) == []


def test_claims_end_within_the_fair_share() -> None:
    """What starts and what stays counts, what gives way by either rule does not."""
    events: list[Event] = [
        node("n1", 4), queue("a", 3), queue("b", 0), training("next", "a"),
        *running(training("low", "a", 1, priority=10), "n1", 0),
        *running(training("v", "b", 2), "n1", 1, 2), training("w", "a", 3),
    ]  # fmt: skip
    taken = [stop("v", Token.RECLAIMED, "w"), stop("low", Token.PREEMPTED, "w")]

    def after(count: int, fair: int, **decisions: Any) -> list[str]:
        return complaints(
            events,
            evictions=taken[:count],
            nominations=[hold("w", "n1", *(range(3) if count == 2 else (1, 2, 3)))],
            fair_share={"a": fair, "b": 0},
            **decisions,
        )

    beyond = ["claims_stay_within_the_fair_share"]
    assert after(2, 3000) == []
    assert after(2, 2999) == beyond
    assert after(1, 4000) == []
    assert after(1, 3999) == beyond
    assert after(2, 3999, bindings=[start("next", "n1", 3)]) == beyond
    assert after(2, 4000, bindings=[start("next", "n1", 3)]) == []


def test_delays_come_before_victims() -> None:
    base = full()[:-1]
    for delay, fine in ((NOW - 40, True), (NOW - 39, False)):
        waiting = training("w", "b", 2, created_at=40.0, preemption_delay_s=delay)
        found = complaints(
            [*base, waiting], evictions=[stop("v", Token.RECLAIMED, "w")], nominations=ROOM
        )
        assert found == ([] if fine else ["delays_respected"])


def test_what_moves_has_its_place_and_is_not_interactive() -> None:
    free = node("n2", 2)
    move = stop("v", Token.CONSOLIDATED, "w", moved=True)
    both = [*ROOM, hold("v", "n2", 0, 1)]
    assert complaints([*full(), free], evictions=[move], nominations=both) == []
    assert complaints([*full(), free], evictions=[move], nominations=ROOM) == [
        "moved_work_has_its_place"
    ]
    ended = stop("v", Token.CONSOLIDATED, "w")
    assert complaints([*full(), free], evictions=[ended], nominations=ROOM) == [
        "consolidation_only_moves"
    ]
    interactive = [*full(interactive=True), free]
    assert complaints(interactive, evictions=[move], nominations=both) == [
        "consolidation_only_moves"
    ]


def test_what_is_left_of_a_victim_is_whole() -> None:
    gang = training("v", "a", gang=Group(requests=(asking(1),) * 3, min_tasks=2))
    events: list[Event] = [
        node("n1", 3), queue("a", 0), queue("b", 3), gang,
        *(TaskPlaced("v", index, "n1", (index,), 1.0) for index in range(3)),
        training("w", "b", 1), training("u", "b", 2),
    ]  # fmt: skip
    room = [hold("w", "n1", 2)]
    assert (
        complaints(events, evictions=[stop("v", Token.RECLAIMED, "w", 2)], nominations=room) == []
    )
    two = [Nomination("u", (("n1", (1, 2), 0),))]
    assert complaints(
        events, evictions=[stop("v", Token.RECLAIMED, "u", 1, 2)], nominations=two
    ) == ["victims_leave_whole_gangs"]
    assert (
        complaints(events, evictions=[stop("v", Token.RECLAIMED, "w", 0, 1, 2)], nominations=room)
        == []
    )


def test_a_broken_gang_that_becomes_whole_keeps_its_new_minimum() -> None:
    """`v` lacks its first group; with it one of the two others is too much, but not both."""
    groups = (Group(requests=(asking(1),)), Group(requests=(asking(1), asking(1)), min_tasks=1))
    events: list[Event] = [
        node("n1", 4), queue("a", 0, reclaim_min_runtime_s=NOW), queue("b", 2),
        training("v", "a", gang=Group(groups=groups)),
        TaskPlaced("v", 1, "n1", (0,), 1.0), TaskPlaced("v", 2, "n1", (1,), 1.0),
        training("w", "b", 1), training("u", "b", 2),
    ]  # fmt: skip
    whole = [start("v", "n1", 2)]
    less = [stop("v", Token.RECLAIMED, "w", 2)]
    rule = "minimum_run_times_respected"
    found = complaints(events, bindings=whole, evictions=less, nominations=[hold("w", "n1", 1)])
    assert rule not in found
    assert rule in complaints(events, evictions=less, nominations=[hold("w", "n1", 1)])
    none = [stop("v", Token.RECLAIMED, "u", 1, 2)]
    both = [hold("u", "n1", 0, 1)]
    assert rule in complaints(events, bindings=whole, evictions=none, nominations=both)


def test_stale_gangs_have_their_grace() -> None:
    gang = training("v", "a", gang=Group(requests=(asking(1),) * 2), stale_grace_s=30.0)
    half: list[Event] = [node("n1", 2), queue("a", 2), gang, TaskPlaced("v", 0, "n1", (0,), 10.0)]
    ended = [stop("v", Token.GANG_INCOMPLETE)]
    assert complaints(half, now=40.0, evictions=ended) == []
    assert complaints(half, now=39.0, evictions=ended) == ["stale_gangs_outlived_their_grace"]
    whole: list[Event] = [*half, TaskPlaced("v", 1, "n1", (1,), 20.0)]
    assert complaints(whole, now=90.0, evictions=ended) == ["stale_gangs_outlived_their_grace"]


def test_everybody_who_waits_has_one_answer() -> None:
    events = [*CLUSTER, *running(training("x", "a"), "n1", 0), training("y", "b")]
    assert complaints(events, reasons={}) == ["every_waiter_has_one_answer"]
    assert complaints(events, reasons={}, bindings=[start("y", "n1", 1)]) == []
    gone = {"y": WAITS, "gone": WAITS}
    assert complaints(events, reasons=gone) == ["every_waiter_has_one_answer"]


def test_claims_are_replayed_one_after_the_other() -> None:
    """`a` may lose two of its three GPUs, not all three; its department counts as well."""
    events: list[Event] = [
        node("n1", 3), queue("top", 2), queue("a", 1, parent="top"), queue("b", 2),
        *(event for n in range(3) for event in running(training(f"v{n}", "a"), "n1", n)),
        *(training(f"w{n}", "b") for n in range(3)),
    ]  # fmt: skip

    def taking(count: int) -> list[str]:
        return complaints(
            events,
            evictions=[stop(f"v{n}", Token.RECLAIMED, f"w{n}") for n in range(count)],
            nominations=[hold(f"w{n}", "n1", n) for n in range(count)],
        )

    assert taking(1) == []
    assert taking(2) == ["nobody_within_quota_is_reclaimed"]


@pytest.mark.parametrize("own", [UNLIMITED, 2, 1])
def test_a_queue_beyond_its_limit_gives_way_whatever_is_guaranteed_below_it(own: float) -> None:
    """The department guarantees nothing that can be counted, but its limit is lower by now."""
    events = [*full(), queue("top", limit=1), queue("a", own, parent="top")]
    found = complaints(events, evictions=[stop("v", Token.RECLAIMED, "w")], nominations=ROOM)
    assert found == []


@pytest.mark.parametrize(
    ("moving", "quota", "fine"), [(0, 1, True), (0, 2, False), (1, 2, True), (1, 3, False)]
)
def test_only_what_a_victim_loses_counts(moving: int, quota: int, *, fine: bool) -> None:
    """`v` and `x` of `a` stop two tasks each; so many tasks of both go on on another node."""
    pair = Group(requests=(asking(1), asking(1)), min_tasks=1)
    events: list[Event] = [
        node("n1", 4), node("n2", 2), queue("a", quota), queue("b", 4),
        *(
            event
            for uid, first in (("v", 0), ("x", 2))
            for event in (
                training(uid, "a", gang=pair),
                TaskPlaced(uid, 0, "n1", (first,), at=1.0),
                TaskPlaced(uid, 1, "n1", (first + 1,), at=1.0),
            )
        ),
        training("w", "b", 4),
    ]  # fmt: skip
    places = [hold("w", "n1", 0, 1, 2, 3)]
    if moving:
        places += [hold("v", "n2", 0), hold("x", "n2", 1)]
    evictions = [stop(uid, Token.RECLAIMED, "w", 0, 1) for uid in ("v", "x")]
    found = complaints(events, evictions=evictions, nominations=places)
    assert found == ([] if fine else ["nobody_within_quota_is_reclaimed"])


@pytest.mark.parametrize(("quota", "fine"), [(0, True), (1, False)])
def test_who_gives_way_to_two_loses_each_task_once(quota: int, *, fine: bool) -> None:
    """`v` has two GPUs: when the second is taken its queue holds one."""
    pair = Group(requests=(asking(1), asking(1)), min_tasks=1)
    events: list[Event] = [
        node("n1", 2), queue("a", quota), queue("b", 2), training("v", "a", gang=pair),
        TaskPlaced("v", 0, "n1", (0,), at=1.0), TaskPlaced("v", 1, "n1", (1,), at=1.0),
        training("w", "b"), training("x", "b"),
    ]  # fmt: skip
    evictions = [stop("v", Token.RECLAIMED, "w", 1), stop("v", Token.RECLAIMED, "x", 0)]
    places = [hold("w", "n1", 1), hold("x", "n1", 0)]
    found = complaints(events, evictions=evictions, nominations=places)
    assert found == ([] if fine else ["nobody_within_quota_is_reclaimed"])
