"""What is guaranteed in groups of nodes and cannot be kept is named; what fits is not."""

from typing import Any

import pytest

from carrel_scheduler.policy.quota_check import quota_findings
from carrel_schema.objects import Department, DepartmentSpec, Meta, Project, ProjectSpec, Quota

GROUPS = {"a100": 4000, "h100": 8000}


def project(name: str, gpus: int | None = 4000, *, department: str = "", **spec: Any) -> Project:
    rules = ProjectSpec(quota=Quota(gpu_milli=gpus), department=department, **spec)
    return Project(meta=Meta(name=name), spec=rules)


def department(name: str, **quotas: float) -> Department:
    rules = DepartmentSpec(quota=Quota(gpu_milli=8000), node_group_quotas=quotas)
    return Department(meta=Meta(name=name), spec=rules)


def told(*rules: Project | Department, groups: dict[str, int] | None = None) -> dict[str, str]:
    """Sentences by name and field, of what is said of groups."""
    projects = [one for one in rules if isinstance(one, Project)]
    departments = [one for one in rules if isinstance(one, Department)]
    found = quota_findings(projects, departments, 12_000, GROUPS if groups is None else groups)
    return {
        f"{one.kind} {one.name} {one.field}": one.sentence
        for one in found
        if one.field.startswith("node_group_quotas")
    }


def test_what_fits_is_not_told() -> None:
    rules = (
        department("science", a100=3),
        project("vision", department="science", node_group_quotas={"a100": 2, "h100": 2}),
        project("speech", department="science", node_group_quotas={"a100": 1}),
        project("audio", node_group_quotas={"a100": 1}),
    )
    assert told(*rules) == {}


def test_more_than_a_group_has_is_told_of_the_cluster() -> None:
    """A department counts with its own quota there, or else with its projects'."""
    rules = (
        department("science", a100=2),
        project("vision", department="science", node_group_quotas={"a100": 1}),
        department("arts"),
        project("film", department="arts", node_group_quotas={"a100": 1.5}),
        project("audio", node_group_quotas={"a100": 1}),
    )
    assert told(*rules) == {
        "cluster  node_group_quotas.a100": (
            "4.5 GPUs are guaranteed in node group `a100` and there are 4: not everybody can have "
            "what they are guaranteed there at the same time."
        )
    }


def test_more_than_the_department_has_there_is_told_of_the_department() -> None:
    members = [
        project(name, department="science", node_group_quotas={"a100": 2})
        for name in ("vision", "speech")
    ]
    assert told(department("science", a100=3), *members) == {
        "department science node_group_quotas.a100": (
            "The projects of `science` are guaranteed 4 GPUs in node group `a100` and the "
            "department 3: what is beyond can be reclaimed by other departments."
        )
    }


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"node_group_quotas": {"v100": 1}}, "no node is in that group"),
        ({"node_group_quotas": {"h100": 9}, "gpus": 9000}, "there are 8 in it"),
        (
            {"node_group_quotas": {"h100": 2}, "node_group_limits": {"h100": 1}},
            "it is limited to 1 there",
        ),
        (
            {"node_group_quotas": {"h100": 2}, "limit": Quota(gpu_milli=1000)},
            "it is limited to 1 in all",
        ),
        ({"node_group_quotas": {"h100": 0}, "limit": Quota(gpu_milli=0)}, ""),
    ],
)
def test_what_is_never_reached_is_told(rules: dict[str, Any], why: str) -> None:
    sentences = [
        text for name, text in told(project("vision", **rules)).items() if "vision" in name
    ]
    assert [sentence.endswith(f"never gets all of them: {why}.") for sentence in sentences] == [
        True
    ] * bool(why)


def test_more_than_the_quota_in_all_is_told() -> None:
    """A manifest may say so where it leaves the quota out."""
    (sentence,) = told(project("vision", 1000, node_group_quotas={"a100": 1, "h100": 1})).values()
    assert sentence.startswith("`vision` is guaranteed 2 GPUs in node groups and 1 in all")


def test_without_nodes_nothing_is_compared_with_them() -> None:
    assert told(project("vision", node_group_quotas={"a100": 4}), groups={}) == {}
