"""The order of service, as the queue shows it."""

from carrel_scheduler.core import State, decide
from carrel_scheduler.core.events import Event, TaskPlaced
from carrel_scheduler.core.plan import Plan
from unit.core.situations import node, project, training, workspace


def plan(*events: Event) -> Plan:
    state = State()
    for event in events:
        state.apply(event)
    return decide(state, 100.0)


def first(*events: Event) -> str:
    """Who gets the one free GPU."""
    return plan(*events).bindings[0].uid


def test_inside_a_project_priority_then_age_then_uid() -> None:
    queue = plan(
        node("n", 1, schedulable=False),
        project("a", 9),
        training("late", "a", created_at=9.0),
        training("z-early", "a", created_at=1.0),
        training("a-early", "a", created_at=1.0),
        workspace("desk", "a", created_at=20.0),
    ).queue
    assert queue == ("desk", "a-early", "z-early", "late")


def test_a_project_within_its_guarantee_comes_first() -> None:
    lent = (training("r", "a", 2), TaskPlaced("r", 0, "n", (0, 1), at=1.0))
    rest = (training("x", "a", created_at=1.0), training("y", "b", created_at=9.0))
    assert first(node("n", 3), project("a", 2, rank=5), project("b", 2), *lent, *rest) == "y"


def test_a_higher_rank_comes_first_beyond_the_guarantee() -> None:
    projects = (project("a", 0, weight=1), project("b", 0, weight=1, rank=1))
    assert first(node("n", 1), *projects, training("x", "a"), training("y", "b")) == "y"


def test_the_smaller_share_comes_first() -> None:
    projects = (project("a", 1, created_at=0.0), project("b", 3, created_at=1.0))
    lent = (
        training("r", "a"),
        TaskPlaced("r", 0, "n", (0,), at=1.0),
        training("s", "b"),
        TaskPlaced("s", 0, "n", (1,), at=1.0),
    )
    rest = (training("x", "a", created_at=1.0), training("y", "b", created_at=9.0))
    assert first(node("n", 3), *projects, *lent, *rest) == "y"


def test_the_older_project_comes_first_among_equals() -> None:
    projects = (project("a", 1, created_at=5.0), project("b", 1, created_at=1.0))
    assert first(node("n", 1), *projects, training("x", "a"), training("y", "b")) == "y"


def test_projects_without_any_share_come_last() -> None:
    projects = (project("a", 0, created_at=0.0), project("b", 0, weight=1, created_at=1.0))
    assert first(node("n", 1), *projects, training("x", "a"), training("y", "b")) == "y"


def test_a_higher_rank_comes_first_within_the_guarantee_too() -> None:
    lent = (training("r", "b", 2), TaskPlaced("r", 0, "n", (0, 1), at=1.0))
    rest = (training("x", "a", created_at=1.0), training("y", "b", created_at=9.0))
    assert first(node("n", 3), project("a", 4), project("b", 4, rank=1), *lent, *rest) == "y"


def test_the_share_counts_the_workload_itself() -> None:
    projects = (project("a", 2, created_at=0.0), project("b", 2, created_at=1.0))
    rest = (training("x", "a", 2, created_at=1.0), training("y", "b", created_at=9.0))
    assert first(node("n", 2), *projects, *rest) == "y"
