"""Contradictions between quotas in groups of nodes.

Nothing here is refused, as in ``quota_check``; amounts are GPUs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from carrel_schema.answers import QuotaFinding
from carrel_schema.objects import Department, DepartmentSpec, Project, ProjectSpec

MILLI = 1000
FIELD = "node_group_quotas"
Spec = ProjectSpec | DepartmentSpec
Kind = Literal["cluster", "department", "project"]


def group_quota_findings(
    projects: Sequence[Project], departments: Sequence[Department], groups: Mapping[str, int]
) -> Iterator[QuotaFinding]:
    """All findings: of each group, then of each department and project by name.

    Args:
        projects: all.
        departments: all.
        groups: the GPUs of each group of nodes that there is, in thousandths; none while none is
            known, which is compared with nothing.
    """
    inside = {
        one.meta.name: [each for each in projects if each.spec.department == one.meta.name]
        for one in departments
    }
    yield from _of_groups(projects, departments, inside, groups)
    for department in sorted(departments, key=lambda one: one.meta.name):
        yield from _of_department(department, inside[department.meta.name])
        yield from _of_one("department", department.meta.name, department.spec, groups)
    for project in sorted(projects, key=lambda one: one.meta.name):
        yield from _of_one("project", project.meta.name, project.spec, groups)


def _of_groups(
    projects: Sequence[Project],
    departments: Sequence[Department],
    inside: Mapping[str, Sequence[Project]],
    groups: Mapping[str, int],
) -> Iterator[QuotaFinding]:
    """Findings of groups in which more is guaranteed than they have."""
    alone = [one for one in projects if one.spec.department not in inside]
    for group, milli in sorted(groups.items()):
        asked = sum(one.spec.node_group_quotas.get(group, 0) for one in alone)
        for department in departments:
            members = _together(inside[department.meta.name], group)
            asked += department.spec.node_group_quotas.get(group, members)
        if round(asked * MILLI) > milli:
            sentence = (
                f"{_gpus(asked)} are guaranteed in node group `{group}` and there are "
                f"{milli / MILLI:g}: not everybody can have what they are guaranteed there at the "
                "same time."
            )
            yield _finding("cluster", "", group, sentence)


def _of_department(department: Department, members: Sequence[Project]) -> Iterator[QuotaFinding]:
    """Findings of a department whose projects are guaranteed more in a group than it is."""
    name = department.meta.name
    for group, own in sorted(department.spec.node_group_quotas.items()):
        promised = _together(members, group)
        if promised > own:
            sentence = (
                f"The projects of `{name}` are guaranteed {_gpus(promised)} in node group "
                f"`{group}` and the department {own:g}: what is beyond can be reclaimed by other "
                "departments."
            )
            yield _finding("department", name, group, sentence)


def _of_one(kind: Kind, name: str, spec: Spec, groups: Mapping[str, int]) -> Iterator[QuotaFinding]:
    """The quotas that one project or department never gets."""
    quota, limit = spec.quota.gpu_milli, spec.limit.gpu_milli
    for group, gpus in sorted(spec.node_group_quotas.items()):
        milli, most = round(gpus * MILLI), spec.node_group_limits.get(group)
        why = ""
        if groups and group not in groups:
            why = "no node is in that group"
        elif groups and milli > groups[group]:
            why = f"there are {groups[group] / MILLI:g} in it"
        elif most is not None and gpus > most:
            why = f"it is limited to {most:g} there"
        elif limit is not None and milli > limit:
            why = f"it is limited to {limit / MILLI:g} in all"
        if why and milli:
            sentence = (
                f"`{name}` is guaranteed {_gpus(gpus)} in node group `{group}` and never gets all "
                f"of them: {why}."
            )
            yield _finding(kind, name, group, sentence)
    together = sum(spec.node_group_quotas.values())
    if quota is not None and round(together * MILLI) > quota:
        sentence = (
            f"`{name}` is guaranteed {_gpus(together)} in node groups and {quota / MILLI:g} in "
            "all: what it holds there counts as beyond its quota elsewhere."
        )
        yield QuotaFinding(kind=kind, name=name, field=FIELD, severity="warning", sentence=sentence)


def _together(members: Sequence[Project], group: str) -> float:
    return sum(one.spec.node_group_quotas.get(group, 0) for one in members)


def _finding(kind: Kind, name: str, group: str, sentence: str) -> QuotaFinding:
    return QuotaFinding(
        kind=kind, name=name, field=f"{FIELD}.{group}", severity="warning", sentence=sentence
    )


def _gpus(gpus: float) -> str:
    return f"{gpus:g} GPU{'' if gpus == 1 else 's'}"
