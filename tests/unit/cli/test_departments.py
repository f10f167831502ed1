"""Departments on the command line, as they read in the CLI, and which requests are made."""

from typing import Any

import pytest

from carrel import Client
from carrel.models import Department, Project, QuotaAmounts, by_department
from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


@pytest.fixture
def fake_departments(fake: FakeScheduler, run: Run) -> FakeScheduler:
    """Two projects of a department and one of none."""
    use = {"gpus_allocated": 3, "gpus_borrowed": 1, "gpus_waiting": 2}
    fake.project("vision", quota={"gpus": 2}, use=use)
    done = run("department", "create", "science", "-g", "4", "--limit-gpus", "6", user="root")
    assert (done.code, done.out) == (0, "Department science created successfully.\n")
    for name in ("vision", "speech"):
        assert run("project", "update", name, "--department", "science").code == 0
    assert run("project", "create", "arts", "-g", "1").code == 0
    return fake


def stored(fake_departments: FakeScheduler) -> Department:
    """The one that there is."""
    with Client(fake_departments.url, fake_departments.token("root")) as client:
        [found] = client.list_departments()
    return found


def test_projects_stand_under_their_departments(fake_departments: FakeScheduler, run: Run) -> None:
    rows = [line.split()[:3] for line in run("list", "projects").out.splitlines()]
    assert rows == [
        ["DEPARTMENT", "PROJECT", "GUARANTEED"],
        ["science", "speech", "0"],
        ["science", "vision", "2"],
        ["-", "arts", "1"],
    ]
    listed = run("department", "list").out.splitlines()[1]
    assert listed.split() == [
        *("science", "4", "3", "2", "6", "yes", "speech,", "vision", "███░|", "3/4")
    ]
    assert stored(fake_departments).limit.gpus == 6


def test_what_is_not_named_stays(fake_departments: FakeScheduler, run: Run) -> None:
    assert run("department", "update", "science", "--weight", "3", "--cpu", "32").code == 0
    assert run("department", "update", "science", "--limit-gpus", "none").code == 0
    found = stored(fake_departments)
    assert found.quota == QuotaAmounts(gpus=4, cpu_millicores=32_000)
    assert (found.weight, found.limit.gpus) == (3, None)
    told = run("department", "describe", "science").out
    assert "Guaranteed:  4 GPUs, 32 processors\nLimit:       no bound\n" in told
    assert "Weight:      3\n" in told
    assert "\nvision " in told
    assert run("project", "update", "vision", "--department", "none").code == 0
    with Client(fake_departments.url, fake_departments.token("root")) as client:
        assert client.get_project("vision").department is None


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("create", "science"), 2, "There is a department science already"),
        (("update", "arts", "-g", "1"), 2, "There is no department arts; there are science."),
        (("update", "science"), 2, "name what to change"),
        (("describe", "x"), 2, "There is no department x"),
        (("delete", "science"), 1, "Projects belong to the department"),
    ],
)
def test_what_cannot_be_is_said(
    fake_departments: FakeScheduler, run: Run, words: tuple[str, ...], code: int, expected: str
) -> None:
    done = run("department", *words)
    assert (done.code, expected in done.err) == (code, True), done.err
    assert stored(fake_departments).name == "science"


def test_only_admins_see_them(fake_departments: FakeScheduler, run: Run) -> None:
    assert "science" not in run("department", "list", user="ada").out
    with Client(fake_departments.url, fake_departments.token("root")) as client:
        assert client.list_departments()[0].quota.gpus == 4
        assert isinstance(client.put_department("more", {}), Department)
        client.delete_department("more")
        assert [one.name for one in client.list_departments()] == ["science"]


def test_those_of_no_department_come_last() -> None:
    owners: dict[str, Any] = {"b": None, "d": "z", "a": "z", "c": "y"}
    found = by_department(Project(name=name, department=owners[name]) for name in owners)
    assert [(name, [one.name for one in inside]) for name, inside in found] == [
        ("y", ["c"]),
        ("z", ["a", "d"]),
        ("", ["b"]),
    ]


def test_what_does_not_fit_is_told_after_a_change(
    fake_departments: FakeScheduler, run: Run
) -> None:
    assert "every limit and weight counts" in run("project", "check", user="root").out
    finding = {"kind": "project", "field": "quota.gpus", "severity": "warning"}
    fake_departments.quota_findings(
        {**finding, "name": "vision", "sentence": "Too much for vision."},
        {**finding, "name": "speech", "sentence": "Too much for speech."},
    )
    told = run("project", "update", "vision", "-g", "3").out.splitlines()
    assert told == ["Project vision updated successfully.", "Warning: Too much for vision."]
    assert run("project", "check").out.splitlines() == [
        "Warning: Too much for vision.",
        "Warning: Too much for speech.",
    ]
