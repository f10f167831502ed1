"""Contradictions between the quotas and limits of projects and departments.

Nothing here is refused: admins may overbook, and they should know it. Only GPUs are compared, which
are what is guaranteed everywhere; amounts are thousandths of a GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from carrel_scheduler.policy.group_quota_check import group_quota_findings
from carrel_schema.answers import QuotaFinding
from carrel_schema.objects import Department, DepartmentSpec, Project, ProjectSpec

MILLI: Final = 1000
RuledKind = Literal["department", "project"]


def quota_findings(
    projects: Sequence[Project],
    departments: Sequence[Department],
    gpu_milli: int,
    groups: Mapping[str, int] = MappingProxyType({}),
    users: Mapping[str, int] = MappingProxyType({}),
) -> list[QuotaFinding]:
    """All findings: of the cluster, then of each department and project by name.

    Args:
        projects: all.
        departments: all.
        gpu_milli: the GPUs that there are; 0 while none is known, which is compared with nothing.
        groups: the GPUs of each group of nodes that there is.
        users: how many members projects have whose users share them; others are not asked about.
    """
    found = list(_of_cluster(projects, departments, gpu_milli))
    by_name = {one.meta.name: one.spec for one in departments}
    for department in sorted(departments, key=lambda one: one.meta.name):
        name = department.meta.name
        members = [one for one in projects if one.spec.department == name]
        found += _of_department(name, department.spec, members)
        found += _of_rules("department", name, department.spec, gpu_milli)
        found += _of_group_limits("department", name, department.spec, groups, {})
    others = sum(1 for one in projects if one.spec.quota.gpu_milli)
    for project in sorted(projects, key=lambda one: one.meta.name):
        name, spec = project.meta.name, project.spec
        found += _of_project(name, spec, by_name.get(spec.department), others)
        found += _of_rules("project", name, spec, gpu_milli)
        found += _of_users(name, spec, users.get(name))
        above = by_name.get(spec.department)
        limits = {} if above is None else above.node_group_limits
        found += _of_group_limits("project", name, spec, groups, limits)
    return [*found, *group_quota_findings(projects, departments, groups)]


def _of_cluster(
    projects: Sequence[Project], departments: Sequence[Department], gpu_milli: int
) -> Iterator[QuotaFinding]:
    known = {one.meta.name for one in departments}
    alone = [one.spec.quota.gpu_milli for one in projects if one.spec.department not in known]
    guaranteed = sum(
        amount or 0 for amount in [*(one.spec.quota.gpu_milli for one in departments), *alone]
    )
    if gpu_milli and guaranteed > gpu_milli:
        yield QuotaFinding(
            kind="cluster",
            name="",
            field="quota.gpus",
            severity="warning",
            sentence=(
                f"{_gpus(guaranteed)} are guaranteed in all and there are {_count(gpu_milli)}: "
                "not everybody can have what they are guaranteed at the same time."
            ),
        )


def _of_department(
    name: str, spec: DepartmentSpec, members: Sequence[Project]
) -> Iterator[QuotaFinding]:
    promised = sum(one.spec.quota.gpu_milli or 0 for one in members)
    own = spec.quota.gpu_milli
    if own is not None and promised > own:
        yield QuotaFinding(
            kind="department",
            name=name,
            field="quota.gpus",
            severity="warning",
            sentence=(
                f"The projects of `{name}` are guaranteed {_gpus(promised)} and the department "
                f"{_count(own)}: what is beyond can be reclaimed by other departments."
            ),
        )


def _of_project(
    name: str, spec: ProjectSpec, department: DepartmentSpec | None, guaranteed_projects: int
) -> Iterator[QuotaFinding]:
    quota = spec.quota.gpu_milli
    if quota is None and guaranteed_projects:
        yield QuotaFinding(
            kind="project",
            name=name,
            field="quota.gpus",
            severity="warning",
            sentence=(
                f"The quota of `{name}` has no bound: its non-preemptible work can take GPUs that "
                "other projects are guaranteed, and is never reclaimed."
            ),
        )
    above = department.limit.gpu_milli if department is not None else None
    if quota is not None and above is not None and quota > above:
        yield QuotaFinding(
            kind="project",
            name=name,
            field="quota.gpus",
            severity="warning",
            sentence=(
                f"`{name}` is guaranteed {_gpus(quota)}, and its department `{spec.department}` "
                f"never uses more than {_count(above)}."
            ),
        )
    limit = spec.limit.gpu_milli
    if limit is not None and above is not None and limit > above:
        yield _never_binds("project", name, limit, f"its department is limited to {_count(above)}")


def _of_users(name: str, spec: ProjectSpec, members: int | None) -> Iterator[QuotaFinding]:
    """An order between users where there are none to be ordered."""
    if spec.user_order == "fair-share" and members is not None and members < 2:
        there = "one member" if members else "no members"
        yield QuotaFinding(
            kind="project",
            name=name,
            field="user_order",
            severity="notice",
            sentence=(
                f"The order `fair-share` between the users of `{name}` has no effect: it has "
                f"{there}."
            ),
        )


def _of_rules(
    kind: RuledKind, name: str, spec: ProjectSpec | DepartmentSpec, gpu_milli: int
) -> Iterator[QuotaFinding]:
    quota, limit = spec.quota.gpu_milli, spec.limit.gpu_milli
    if quota is not None and limit is not None and quota > limit:
        yield QuotaFinding(
            kind=kind,
            name=name,
            field="limit.gpus",
            severity="warning",
            sentence=(
                f"`{name}` is guaranteed {_gpus(quota)} and limited to {_count(limit)}: it never "
                "gets all of its quota."
            ),
        )
    if limit is not None and gpu_milli and limit >= gpu_milli:
        yield _never_binds(kind, name, limit, f"there are {_count(gpu_milli)} in all")
    elif limit is not None and quota is not None and not spec.over_quota and limit > quota:
        yield _never_binds(kind, name, limit, f"it is bound to its quota, {_count(quota)}")
    if spec.weight is not None and not spec.over_quota:
        yield QuotaFinding(
            kind=kind,
            name=name,
            field="weight",
            severity="notice",
            sentence=f"The weight of `{name}` has no effect: it may not use more than its quota.",
        )


def _of_group_limits(
    kind: RuledKind,
    name: str,
    spec: ProjectSpec | DepartmentSpec,
    groups: Mapping[str, int],
    above: Mapping[str, float],
) -> Iterator[QuotaFinding]:
    """Limits in node groups without effect.

    Args:
        kind: of which the rules are.
        name: its name.
        spec: the rules.
        groups: the GPUs of each group that there is.
        above: the limits of its department.
    """
    all_gpus = spec.limit.gpu_milli
    for group, gpus in sorted(spec.node_group_limits.items()):
        limit, there = round(gpus * MILLI), groups.get(group)
        most = round(above[group] * MILLI) if group in above else None
        if not groups:
            why = ""
        elif there is None:
            why = "no node is in that group"
        elif limit >= there:
            why = f"there are {_count(there)} in it"
        elif most is not None and limit > most:
            why = f"its department is limited to {_count(most)} there"
        else:
            why = ""
        if not why and all_gpus is not None and limit > all_gpus:
            why = f"it is limited to {_count(all_gpus)} in all"
        if why:
            yield QuotaFinding(
                kind=kind,
                name=name,
                field=f"node_group_limits.{group}",
                severity="notice",
                sentence=(
                    f"The limit of `{name}` in node group `{group}`, {_gpus(limit)}, never "
                    f"counts: {why}."
                ),
            )


def _never_binds(kind: RuledKind, name: str, limit: int, why: str) -> QuotaFinding:
    return QuotaFinding(
        kind=kind,
        name=name,
        field="limit.gpus",
        severity="notice",
        sentence=f"The limit of `{name}`, {_gpus(limit)}, never counts: {why}.",
    )


def _count(milli: int) -> str:
    return f"{milli / MILLI:g}"


def _gpus(milli: int) -> str:
    return f"{_count(milli)} GPU{'' if milli == MILLI else 's'}"
