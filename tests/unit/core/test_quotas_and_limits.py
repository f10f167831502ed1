"""Limits and quotas in the way of work, at every level."""

from typing import Any

import pytest

from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.queues.queues import QueueColumns, Sum
from carrel_scheduler.core.queues.usage import permanent_violation
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector, Triple
from unit.core.queue_trees import columns, gpus, hold, queue, queue_usage


def blocked(built: QueueColumns, name: str, demand: Triple, *, fixed: bool = False) -> Any:
    """(token, queue, held, asked, bound) of the barrier."""
    found = queue_usage(built, 16).over_limit(
        built.slot(name), demand, demand if fixed else (0, 0, 0)
    )
    if found is None:
        return None
    assert found.slot == built.slot(found.queue)
    return found.token, found.queue, found.held, found.asked, found.bound


def test_department_quota_stands_over_project_quotas() -> None:
    """Quotas of 3 and 3 in a department of 4: no more than 4 in all are non-preemptible."""
    built = columns(queue("dept", 4), queue("a", 3, "dept"), queue("b", 3, "dept"))
    granted = 0
    for _ in range(3):
        for name in ("a", "b"):
            if blocked(built, name, gpus(1), fixed=True) is None:
                hold(built, name, 1, fixed=True)
                granted += 1
    assert granted == 4
    assert blocked(built, "b", gpus(1), fixed=True) == (
        Token.NON_PREEMPTIBLE_BEYOND_QUOTA,
        "dept",
        4000,
        1000,
        4000,
    )
    assert blocked(built, "b", gpus(9)) is None


def test_preemptible_work_does_not_use_up_the_quota_of_the_non_preemptible() -> None:
    built = columns(queue("a", 2))
    hold(built, "a", 6)
    assert blocked(built, "a", gpus(2), fixed=True) is None
    assert blocked(built, "a", gpus(3), fixed=True) is not None


@pytest.mark.parametrize("level", ["top", "dept", "a"])
def test_a_limit_holds_at_every_level(level: str) -> None:
    rules = [queue("top", 9), queue("dept", 9, "top"), queue("a", 9, "dept")]
    built = columns(*rules)
    place = ("top", "dept", "a").index(level)
    built.set(queue(level, 9, ("", "top", "dept")[place], limit=3))
    hold(built, "a", 2.5)
    assert blocked(built, "a", gpus(0.5)) is None
    assert blocked(built, "a", gpus(0.6)) == (Token.OVER_LIMIT, level, 2500, 600, 3000)


def test_the_nearest_queue_is_named_first() -> None:
    built = columns(queue("dept", 0, limit=1), queue("a", 0, "dept", limit=2))
    assert blocked(built, "a", gpus(3))[1] == "a"
    assert blocked(built, "a", gpus(2))[1] == "dept"


def test_without_borrowing_the_quota_binds_everything() -> None:
    built = columns(queue("dept", 2, over_quota=False), queue("a", 1, "dept"))
    hold(built, "a", 2)
    assert blocked(built, "a", gpus(1)) == (Token.OVER_QUOTA_OFF, "dept", 2000, 1000, 2000)


def test_of_several_rules_of_a_queue_the_limit_comes_first() -> None:
    built = columns(queue("a", 1, limit=2, over_quota=False))
    assert blocked(built, "a", gpus(3), fixed=True)[0] is Token.OVER_LIMIT
    assert blocked(built, "a", gpus(2), fixed=True)[0] is Token.NON_PREEMPTIBLE_BEYOND_QUOTA
    assert blocked(built, "a", gpus(2))[0] is Token.OVER_QUOTA_OFF


def test_a_resource_that_is_not_asked_for_never_stands_in_the_way() -> None:
    built = columns(
        QueueSet("a", ResourceVector(9000, 1000, UNLIMITED), ResourceVector(9000, 1000, UNLIMITED))
    )
    built.add(Sum.USED, 0, (0, 5000, 0))
    built.add(Sum.FIXED, 0, (0, 5000, 0))
    assert blocked(built, "a", gpus(1), fixed=True) is None
    assert blocked(built, "a", (0, 1, 0)) == (Token.OVER_LIMIT, "a", 5000, 1, 1000)


def test_what_stands_for_ever_is_known_from_the_rules_alone() -> None:
    built = columns(queue("dept", 4, limit=4), queue("a", 2, "dept"))
    hold(built, "a", 4)
    stand = queue_usage(built, 16)
    leaf = built.slot("a")
    now = stand.over_limit(leaf, gpus(1))
    assert now is not None
    assert not now.for_ever
    assert permanent_violation(built.table, leaf, gpus(4)) is None
    lasting = permanent_violation(built.table, leaf, gpus(5))
    assert lasting is not None
    assert lasting.for_ever
    assert (lasting.queue, lasting.bound) == ("dept", 4000)
    fixed = permanent_violation(built.table, leaf, gpus(3), gpus(3))
    assert fixed is not None
    assert (fixed.queue, fixed.token) == ("a", Token.NON_PREEMPTIBLE_BEYOND_QUOTA)


def test_what_is_held_above_a_lowered_limit_stays_but_nothing_new_starts() -> None:
    built = columns(queue("a", 4))
    hold(built, "a", 4)
    built.set(queue("a", 4, limit=2))
    assert blocked(built, "a", gpus(0.1)) == (Token.OVER_LIMIT, "a", 4000, 100, 2000)
    built.add(Sum.USED, 0, gpus(3), sign=-1)
    assert blocked(built, "a", gpus(1)) is None
