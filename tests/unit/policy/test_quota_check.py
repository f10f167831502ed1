"""Quotas and limits that do not fit together are named; those that do are not."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.policy.quota_check import quota_findings
from carrel_schema.objects import Department, DepartmentSpec, Meta, Project, ProjectSpec, Quota

EIGHT = 8000


def project(name: str, gpus: int | None, *, limit: int | None = None, **spec: Any) -> Project:
    quota, most = Quota(gpu_milli=gpus), Quota(gpu_milli=limit)
    return Project(meta=Meta(name=name), spec=ProjectSpec(quota=quota, limit=most, **spec))


def department(name: str, gpus: int | None, *, limit: int | None = None) -> Department:
    quota, most = Quota(gpu_milli=gpus), Quota(gpu_milli=limit)
    return Department(meta=Meta(name=name), spec=DepartmentSpec(quota=quota, limit=most))


def test_an_order_between_users_needs_users() -> None:
    shared = project("vision", 3000, user_order="fair-share")
    for members, told in ((0, "it has no members"), (1, "it has one member"), (2, ""), (None, "")):
        users = {} if members is None else {"vision": members}
        found = quota_findings([shared], [], EIGHT, users=users)
        assert [one.field for one in found] == (["user_order"] if told else [])
        assert all(told in one.sentence for one in found)
    plain = project("vision", 3000)
    assert quota_findings([plain], [], EIGHT, users={"vision": 1}) == []


def test_what_fits_is_not_told() -> None:
    projects = [
        project("vision", 3000, department="science"),
        project("speech", 1000, limit=4000, department="science", weight=3),
        project("arts", 4000),
    ]
    assert quota_findings(projects, [department("science", 4000, limit=6000)], EIGHT) == []


@pytest.mark.parametrize(
    ("projects", "departments", "expected"),
    [
        (
            [project("vision", 5000), project("speech", 3500)],
            [],
            ("cluster", "", "quota.gpus", "8.5 GPUs are guaranteed in all and there are 8"),
        ),
        (
            [project("a", 2000, department="lab"), project("b", 3000, department="lab")],
            [department("lab", 4000)],
            ("department", "lab", "quota.gpus", "are guaranteed 5 GPUs and the department 4"),
        ),
        (
            [project("open", None), project("b", 3000)],
            [],
            ("project", "open", "quota.gpus", "has no bound"),
        ),
        (
            [project("a", 5000, department="lab")],
            [department("lab", 5000, limit=4000)],
            ("project", "a", "quota.gpus", "never uses more than 4"),
        ),
        (
            [project("a", 3000, limit=2000)],
            [],
            ("project", "a", "limit.gpus", "it never gets all of its quota"),
        ),
        (
            [project("a", 3000, limit=8000)],
            [],
            ("project", "a", "limit.gpus", "8 GPUs, never counts: there are 8 in all"),
        ),
        (
            [project("a", 1000, limit=2000, over_quota=False)],
            [],
            ("project", "a", "limit.gpus", "it is bound to its quota, 1"),
        ),
        (
            [project("a", 1000, limit=3000, department="lab")],
            [department("lab", 1000, limit=2000)],
            ("project", "a", "limit.gpus", "its department is limited to 2"),
        ),
        (
            [project("a", 1000, weight=2, over_quota=False)],
            [],
            ("project", "a", "weight", "has no effect"),
        ),
    ],
)
def test_what_does_not_fit_is_named(
    projects: list[Project], departments: list[Department], expected: tuple[str, str, str, str]
) -> None:
    kind, name, field, part = expected
    found = [
        one
        for one in quota_findings(projects, departments, EIGHT)
        if (one.kind, one.name, one.field) == (kind, name, field)
    ]
    assert [part in one.sentence for one in found] == [True], found


def test_without_known_gpus_nothing_is_compared_with_them() -> None:
    assert quota_findings([project("a", 3000, limit=8000)], [], 0) == []


def test_the_only_guarantee_may_be_open() -> None:
    assert quota_findings([project("a", None), project("b", 0)], [], EIGHT) == []


@pytest.mark.parametrize(
    ("limits", "above", "why"),
    [
        ({"a100": 3}, {"a100": 3}, ""),
        ({"a100": 4}, {}, "there are 4 in it"),
        ({"v100": 1}, {}, "no node is in that group"),
        ({"a100": 3}, {"a100": 2}, "its department is limited to 2 there"),
        ({"h100": 6}, {}, "it is limited to 5 in all"),
    ],
)
def test_limits_in_groups_of_nodes_that_never_count_are_named(
    limits: dict[str, float], above: dict[str, float], why: str
) -> None:
    one = project("vision", 0, limit=5000, department="science", node_group_limits=limits)
    science = department("science", 8000)
    science.spec = msgspec.structs.replace(science.spec, node_group_limits=above)
    found = quota_findings([one], [science], 12_000, {"a100": 4000, "h100": 8000})
    group = next(iter(limits))
    told = [f.sentence for f in found if f.field == f"node_group_limits.{group}"]
    assert [sentence.endswith(f"never counts: {why}.") for sentence in told] == [True] * bool(why)
