"""Limits of GPUs in groups of nodes, from a shell."""

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run

FIELD = "node_group_limits"


def test_limits_are_set_shown_and_taken_away_one_by_one(run: Run, fake: FakeScheduler) -> None:
    update = ("project", "update", "vision", "--node-group-limits")
    assert run(*update, "a100=4,h100=2.5", user="root").code == 0
    assert fake.project("vision")[FIELD] == {"a100": 4, "h100": 2.5}
    shown = " ".join(run("project", "describe", "vision").out.split())
    assert "Limit in node groups: a100=4, h100=2.5" in shown
    assert run(*update, "a100=none", user="root").code == 0
    assert fake.project("vision")[FIELD] == {"h100": 2.5}
    assert run(*update, "none", user="root").code == 0
    assert fake.project("vision")[FIELD] == {}
    wrong = run(*update, "a100", user="root")
    assert wrong.code == 2
    assert "should be the name of a node group" in " ".join(wrong.err.replace("│", "").split())


def test_a_department_keeps_the_limits_that_are_not_named(run: Run, fake: FakeScheduler) -> None:
    made = run(
        "department", "create", "arts", "--node-group-limits", "a100=4,h100=none", user="root"
    )
    assert made.code == 0, made.err
    assert fake.departments["arts"][FIELD] == {"a100": 4}
    update = ("department", "update", "arts", "--node-group-limits")
    assert run(*update, "h100=2", user="root").code == 0
    assert fake.departments["arts"][FIELD] == {"a100": 4, "h100": 2}
    assert "a100=4, h100=2" in run("department", "describe", "arts", user="root").out
    assert run(*update, "a100=none", user="root").code == 0
    assert fake.departments["arts"][FIELD] == {"h100": 2}
    assert run(*update, "none", user="root").code == 0
    assert fake.departments["arts"][FIELD] == {}
