"""The tree of queues: its rules, and sums along every path."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import QueueSet, UsageSeen
from carrel_scheduler.core.queues.queues import QueueColumns, Sum
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.resources import ResourceVector, Triple
from unit.core.queue_trees import columns, gpus, hold, queue


def tree() -> QueueColumns:
    return columns(
        queue("dept", 8),
        queue("team", 4, "dept"),
        queue("user", 2, "team"),
        queue("lone", 2),
    )


def row(built: QueueColumns, name: str, which: Sum = Sum.USED) -> tuple[int, ...]:
    array = {Sum.USED: built.used, Sum.FIXED: built.fixed, Sum.WAITING: built.waiting}[which]
    return tuple(array[built.slot(name)].tolist())


def test_what_a_leaf_holds_counts_in_every_queue_above_it() -> None:
    built = tree()
    built.add(Sum.USED, built.slot("user"), (1500, 2000, 30))
    built.add(Sum.USED, built.slot("user"), (500, 0, 10), sign=-1)
    for name in ("user", "team", "dept"):
        assert row(built, name) == (1000, 2000, 20)
    assert row(built, "lone") == (0, 0, 0)
    assert not built.fixed.any()


@pytest.mark.parametrize("which", list(Sum))
def test_the_sums_are_apart_from_each_other(which: Sum) -> None:
    built = tree()
    built.add(which, built.slot("lone"), (1, 2, 3))
    sums = [
        built.used,
        built.fixed,
        built.releasing,
        built.reserved,
        built.reserved_fixed,
        built.waiting,
    ]
    assert [bool(array.any()) for array in sums] == [other is which for other in Sum]


def test_paths_children_and_leaves() -> None:
    built = tree()
    dept, team, user = (built.slot(name) for name in ("dept", "team", "user"))
    assert built.path(user) == (user, team, dept)
    assert built.children(dept) == (team,)
    assert built.is_leaf(user)
    assert not built.is_leaf(team)


def test_children_are_ordered_by_age_then_name() -> None:
    built = columns(
        queue("top", 1),
        queue("c", 1, "top", created_at=1.0),
        queue("b", 1, "top", created_at=1.0),
        queue("a", 1, "top", created_at=2.0),
    )
    names = [built.rule(slot).name for slot in built.children(built.slot("top"))]
    assert names == ["b", "c", "a"]


def test_a_moved_queue_takes_its_sums_and_its_descendants_along() -> None:
    built = tree()
    hold(built, "user", 3, fixed=True)
    hold(built, "lone", 1)
    built.set(queue("other", 9))
    built.set(queue("team", 4, "other"))
    assert row(built, "dept") == (0, 0, 0)
    assert row(built, "other") == row(built, "team") == row(built, "user") == gpus(3)
    assert row(built, "other", Sum.FIXED) == gpus(3)
    hold(built, "user", 1)
    assert row(built, "other") == gpus(4)
    built.set(queue("team", 4))
    assert row(built, "other") == (0, 0, 0)
    assert row(built, "team") == gpus(4)
    assert built.path(built.slot("user")) == (built.slot("user"), built.slot("team"))


def test_setting_the_same_rules_again_changes_nothing() -> None:
    built = tree()
    table = built.table
    built.set(queue("team", 4, "dept"))
    assert built.table is table
    built.set(queue("team", 5, "dept"))
    assert built.table is not table


def test_a_copy_is_independent() -> None:
    built = tree()
    twin = built.copy()
    hold(twin, "user", 1)
    twin.set_usage(UsageSeen("user", (1, 2, 3)))
    twin.set(queue("more", 1))
    assert not built.used.any()
    assert not built.usage.any()
    assert "more" not in built.slots
    hold(built, "user", 2)
    assert row(twin, "dept") == gpus(1)


def test_a_dropped_queue_leaves_its_slot_to_the_next_one() -> None:
    built = tree()
    slot = built.slot("lone")
    built.set_usage(UsageSeen("lone", (5, 5, 5)))
    built.drop("lone")
    assert built.table.names[slot] == ""
    assert built.table.parent[slot] == -1
    built.set(queue("next", 1, "dept"))
    assert built.slot("next") == slot
    assert not built.usage[slot].any()
    assert built.path(slot) == (slot, built.slot("dept"))


def refused(built: QueueColumns, event: QueueSet) -> tuple[str, str]:
    before = built.copy()
    with pytest.raises(InvalidEvent) as error:
        built.set(event)
    assert built.slots == before.slots
    assert built.rules == before.rules
    assert built.parent == before.parent
    return error.value.code, error.value.field


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"name": ""}, ("bad_name", "name")),
        ({"quota": ResourceVector(-2)}, ("bad_amount", "quota")),
        ({"limit": ResourceVector(0, 0, -7)}, ("bad_amount", "limit")),
        ({"quota": ResourceVector(1 << 60)}, ("bad_amount", "quota")),
        ({"weight": (1, -1, 1)}, ("bad_amount", "weight")),
        ({"weight": (1, 1)}, ("bad_amount", "weight")),
        ({"created_at": float("nan")}, ("bad_time", "created_at")),
        ({"preempt_min_runtime_s": -1.0}, ("bad_time", "preempt_min_runtime_s")),
        ({"reclaim_min_runtime_s": float("nan")}, ("bad_time", "reclaim_min_runtime_s")),
        ({"parent": "nobody"}, ("unknown_queue", "parent")),
        ({"parent": "new"}, ("queue_cycle", "parent")),
    ],
)
def test_rules_that_mean_nothing_are_refused(
    change: dict[str, Any], answer: tuple[str, str]
) -> None:
    assert refused(tree(), replace(queue("new", 1), **change)) == answer


def test_a_queue_cannot_be_below_itself() -> None:
    assert refused(tree(), queue("dept", 8, "user")) == ("queue_cycle", "parent")
    assert refused(tree(), queue("team", 8, "team")) == ("queue_cycle", "parent")


@pytest.mark.parametrize("name", ["dept", "user"])
def test_a_queue_in_use_is_not_dropped(name: str) -> None:
    built = tree()
    hold(built, "user", 1)
    with pytest.raises(InvalidEvent) as error:
        built.drop(name)
    assert (error.value.code, error.value.field) == ("queue_in_use", "name")
    assert name in built.slots


def test_unknown_queues_and_bad_usage_are_refused() -> None:
    built = tree()
    with pytest.raises(InvalidEvent, match="unknown_queue"):
        built.drop("x")
    with pytest.raises(InvalidEvent, match="unknown_queue"):
        built.set_usage(UsageSeen("x", (0, 0, 0)))
    with pytest.raises(InvalidEvent, match="bad_amount"):
        built.set_usage(UsageSeen("dept", (0, -1, 0)))


def test_what_is_held_beyond_a_lowered_rule_is_the_bound_until_the_rules_are_set_again() -> None:
    built = tree()
    hold(built, "lone", 5, fixed=True)
    built.add(Sum.RESERVED, built.slot("lone"), gpus(1))
    lone = built.slot("lone")
    built.set(queue("lone", 2, limit=3))
    assert built.ceiling(lone).fixed == (5000, NO_BOUND, NO_BOUND)
    assert built.ceiling(lone).all == (6000, NO_BOUND, NO_BOUND)
    built.add(Sum.USED, lone, gpus(4), sign=-1)
    built.add(Sum.FIXED, lone, gpus(4), sign=-1)
    assert built.ceiling(lone).all[0] == 6000
    built.set(queue("lone", 2, limit=3))
    assert (built.ceiling(lone).fixed[0], built.ceiling(lone).all[0]) == (2000, 3000)


def test_what_a_moved_queue_brings_along_raises_the_bound_of_its_new_parent() -> None:
    built = tree()
    built.set(queue("small", 1, limit=2))
    hold(built, "user", 3)
    built.set(queue("team", 4, "small"))
    assert built.ceiling(built.slot("small")).all[0] == 3000
    assert built.ceiling(built.slot("small")).fixed[0] == 1000


changes = st.lists(
    st.tuples(st.sampled_from(list(Sum)), st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)),
    max_size=30,
)


@settings(max_examples=60)
@given(changes=changes, moves=st.lists(st.integers(0, 5), max_size=4))
def test_every_sum_is_that_of_its_leaves(
    changes: list[tuple[Sum, int, int, int]], moves: list[int]
) -> None:
    built = columns(
        queue("d1", 1),
        queue("d2", 1),
        queue("t", 1, "d1"),
        *(queue(f"l{n}", 1, ("t", "t", "d2", "")[n]) for n in range(4)),
    )
    held: dict[str, Triple] = {}
    for which, leaf, amount, other in changes:
        if which is Sum.USED:
            name, before = f"l{leaf}", held.get(f"l{leaf}", (0, 0, 0))
            held[name] = (before[0] + amount, before[1] + other, before[2] + amount)
        built.add(which, built.slot(f"l{leaf}"), (amount, other, amount))
    for move in moves:
        built.set(queue("t", 1, ("d1", "d2", "")[move % 3]))
    for name, slot in built.slots.items():
        below = [held.get(f"l{n}", (0, 0, 0)) for n in range(4)]
        mine = [
            amounts for n, amounts in enumerate(below) if slot in built.path(built.slot(f"l{n}"))
        ]
        assert built.used[slot].tolist() == np.array([(0, 0, 0), *mine]).sum(axis=0).tolist(), name
