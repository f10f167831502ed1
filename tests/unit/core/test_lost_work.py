"""Among those who may give way, who loses least goes: alone, in a gang, and across projects."""

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import CheckpointSeen, Event, QueueSet, TaskPlaced
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from unit.core.situations import NOW, asking, node, queue, running, state_of, training


def stopped(*events: Event) -> list[str]:
    return sorted(one.uid for one in decide(state_of(*events), NOW).evictions)


@pytest.mark.parametrize("gpus", [0, 1])
def test_who_saved_lately_goes_although_younger_work_is_there(gpus: int) -> None:
    """In the order of victims `young` would go first; it lost 60 seconds, `saved` 10."""
    events: list[Event] = [
        node("n", 2, cpu=8),
        QueueSet("a", ResourceVector(0, 0, UNLIMITED)),
        QueueSet("b", ResourceVector(2000, 4000, UNLIMITED)),
        *running(training("saved", "a", gpus, cpu=4, created_at=1.0), "n", *range(gpus), at=1.0),
        CheckpointSeen("saved", 90.0),
        *running(training("young", "a", gpus, cpu=4, created_at=30.0), "n", *range(1, 1 + gpus),
                 at=40.0),
        training("w", "b", gpus, cpu=4),
    ]  # fmt: skip
    assert stopped(*events) == ["saved"]


def test_lost_work_is_measured_by_what_is_usual_in_the_project() -> None:
    """`a` loses 90 and 10 seconds, 50 in the mean; `c` 60 alone, which is its mean.

    On the node of `high`, more than usual would be lost; on that of `only` as much as usual.
    """
    events: list[Event] = [
        node("n1", 1), node("n2", 1), node("n3", 1),
        queue("a", 0), queue("b", 1), queue("c", 0),
        *running(training("high", "a", created_at=1.0), "n1", 0, at=10.0),
        *running(training("low", "a", created_at=2.0, priority=60), "n3", 0, at=90.0),
        *running(training("only", "c", created_at=3.0), "n2", 0, at=40.0),
        training("w", "b", nodes=["n1", "n2"]),
    ]  # fmt: skip
    assert stopped(*events) == ["only"]


def test_what_is_usual_is_told_per_gpu() -> None:
    """Both lose two GPUs' work: `wide` what a GPU of `a` loses in the mean, `brief` 1.1 times that.

    Per job `wide` would lose 1.33 times what is usual, since the other job of `a` is small.
    """
    events: list[Event] = [
        node("n1", 2), node("n2", 2), node("n3", 3),
        queue("a", 0), queue("b", 2), queue("c", 0),
        *running(training("wide", "a", 2, created_at=1.0), "n1", 0, 1, at=90.0),
        *running(training("small", "a", created_at=2.0, priority=60), "n3", 0, at=90.0),
        *running(training("brief", "c", 2, created_at=3.0), "n2", 0, 1, at=89.0),
        *running(training("other", "c", 2, created_at=3.0, priority=60), "n3", 1, 2, at=91.0),
        training("w", "b", 2, nodes=["n1", "n2"]),
    ]  # fmt: skip
    assert stopped(*events) == ["wide"]


def test_a_gang_loses_what_all_its_members_lose() -> None:
    """The gang lost 20 seconds on three devices, the single one 50 seconds on one."""
    gang = training("gang", "a", gang=Group(requests=(asking(1),) * 3))
    events: list[Event] = [
        node("n1", 3), node("n2", 1), queue("a", 0), queue("b", 1),
        gang, *(TaskPlaced("gang", n, "n1", (n,), 80.0) for n in range(3)),
        *running(training("single", "a"), "n2", 0, at=50.0),
        training("w", "b"),
    ]  # fmt: skip
    assert stopped(*events) == ["single"]
    events[-3] = training("single", "a")
    events[-2] = TaskPlaced("single", 0, "n2", (0,), 30.0)
    assert stopped(*events) == ["gang"]


def test_lower_priority_goes_before_less_lost_work() -> None:
    events: list[Event] = [
        node("n", 2), queue("a", 0), queue("b", 1),
        *running(training("low", "a", priority=40), "n", 0, at=1.0),
        *running(training("high", "a", priority=50), "n", 1, at=99.0),
        training("w", "b"),
    ]  # fmt: skip
    assert stopped(*events) == ["low"]


def test_equal_losses_follow_the_order_of_victims() -> None:
    events: list[Event] = [
        node("n", 3), queue("a", 0), queue("b", 1),
        *(event for n, created in enumerate((3.0, 9.0, 5.0))
          for event in running(training(f"v{n}", "a", created_at=created), "n", n, at=20.0)),
        training("w", "b"),
    ]  # fmt: skip
    assert stopped(*events) == ["v1"]
