"""Limits and guarantees of GPUs in groups of nodes, from a shell."""

import pytest

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run

BOTH = pytest.mark.parametrize(
    ("option", "label"),
    [
        ("--node-group-limits", "Limit in node groups"),
        ("--node-group-quotas", "Guaranteed in node groups"),
    ],
)


def field_of(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


@BOTH
def test_amounts_are_set_shown_and_taken_away_one_by_one(
    run: Run, fake: FakeScheduler, option: str, label: str
) -> None:
    update, field = ("project", "update", "vision", option), field_of(option)
    assert run(*update, "a100=4,h100=2.5", user="root").code == 0
    assert fake.project("vision")[field] == {"a100": 4, "h100": 2.5}
    shown = " ".join(run("project", "describe", "vision").out.split())
    assert f"{label}: a100=4, h100=2.5" in shown
    assert run(*update, "a100=none", user="root").code == 0
    assert fake.project("vision")[field] == {"h100": 2.5}
    assert run(*update, "none", user="root").code == 0
    assert fake.project("vision")[field] == {}
    wrong = run(*update, "a100", user="root")
    assert wrong.code == 2
    words = " ".join(wrong.err.replace("│", "").split())
    assert f"{option}: `a100` should be the name of a node group" in words


@BOTH
def test_a_department_keeps_the_amounts_that_are_not_named(
    run: Run, fake: FakeScheduler, option: str, label: str
) -> None:
    field = field_of(option)
    made = run("department", "create", "arts", option, "a100=4,h100=none", user="root")
    assert made.code == 0, made.err
    assert fake.departments["arts"][field] == {"a100": 4}
    update = ("department", "update", "arts", option)
    assert run(*update, "h100=2", user="root").code == 0
    assert fake.departments["arts"][field] == {"a100": 4, "h100": 2}
    shown = " ".join(run("department", "describe", "arts", user="root").out.split())
    assert f"{label}: a100=4, h100=2" in shown
    assert run(*update, "a100=none", user="root").code == 0
    assert fake.departments["arts"][field] == {"h100": 2}
    assert run(*update, "none", user="root").code == 0
    assert fake.departments["arts"][field] == {}
