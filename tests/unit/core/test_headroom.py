"""What a queue has left of its deserved quota and its limits, for which nodes are requested."""

from typing import Any

import pytest

from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.queues.headroom import Headroom
from carrel_scheduler.core.queues.queues import QueueColumns, Sum
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector, Triple
from unit.core.queue_trees import columns, gpus, hold, queue


def beyond(
    built: QueueColumns, headroom: Headroom, name: str, demand: Triple, *, fixed: bool = False
) -> Any:
    """(token, queue, held, asked, bound) of what the work would go beyond."""
    found = headroom.violation(built.slot(name), demand, demand if fixed else (0, 0, 0))
    if found is None:
        return None
    assert found.slot == built.slot(found.queue)
    return found.token, found.queue, found.held, found.asked, found.bound


@pytest.mark.parametrize("level", ["top", "dept", "a"])
def test_preemptible_work_too_has_the_quota_only_at_every_level(level: str) -> None:
    above = {"top": "", "dept": "top", "a": "dept"}
    built = columns(*(queue(name, 3 if name == level else 9, above[name]) for name in above))
    hold(built, "a", 2)
    headroom = Headroom(built)
    assert beyond(built, headroom, "a", gpus(1)) is None
    assert beyond(built, headroom, "a", gpus(1.1)) == (Token.QUOTA_USED, level, 2000, 1100, 3000)


def test_an_open_quota_is_never_used_up() -> None:
    built = columns(queue("dept", 4), queue("a", -1, "dept"))
    headroom = Headroom(built)
    assert beyond(built, headroom, "a", gpus(4)) is None
    assert beyond(built, headroom, "a", gpus(5))[1] == "dept"


@pytest.mark.parametrize("which", [Sum.RESERVED, Sum.USED])
def test_what_is_reserved_counts_like_what_runs(which: Sum) -> None:
    built = columns(queue("a", 4))
    built.add(which, 0, gpus(3))
    headroom = Headroom(built)
    assert beyond(built, headroom, "a", gpus(2)) == (Token.QUOTA_USED, "a", 3000, 2000, 4000)


def test_a_limit_and_the_quota_of_what_may_not_be_stopped_come_first() -> None:
    headroom = Headroom(built := columns(queue("a", 2, limit=3)))
    assert beyond(built, headroom, "a", gpus(4))[0] is Token.OVER_LIMIT
    assert beyond(built, headroom, "a", gpus(3))[0] is Token.QUOTA_USED
    fixed = beyond(built, headroom, "a", gpus(3), fixed=True)
    assert fixed[0] is Token.NON_PREEMPTIBLE_BEYOND_QUOTA


def test_a_resource_that_is_not_asked_for_is_not_in_the_way() -> None:
    built = columns(QueueSet("a", ResourceVector(9000, 1000, UNLIMITED)))
    built.add(Sum.USED, 0, (0, 5000, 0))
    headroom = Headroom(built)
    assert beyond(built, headroom, "a", gpus(9)) is None
    assert beyond(built, headroom, "a", (0, 1, 0)) == (Token.QUOTA_USED, "a", 5000, 1, 1000)


def test_what_nodes_were_asked_for_counts_up_to_the_top() -> None:
    built = columns(queue("dept", 4), queue("a", 4, "dept"), queue("b", 4, "dept"))
    headroom = Headroom(built)
    headroom.add(built.slot("a"), gpus(3), gpus(3))
    assert beyond(built, headroom, "b", gpus(1)) is None
    assert beyond(built, headroom, "b", gpus(2)) == (Token.QUOTA_USED, "dept", 3000, 2000, 4000)
    fixed = beyond(built, headroom, "a", gpus(2), fixed=True)
    assert fixed == (Token.NON_PREEMPTIBLE_BEYOND_QUOTA, "a", 3000, 2000, 4000)


def test_it_is_known_when_the_rules_have_changed() -> None:
    built = columns(queue("a", 4))
    headroom = Headroom(built)
    hold(built, "a", 1)
    assert headroom.is_of(built)
    built.set(queue("a", 5))
    assert not headroom.is_of(built)
