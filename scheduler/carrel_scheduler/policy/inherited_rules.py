"""Rules that a project takes over from its department, and a department from the cluster.

A project that says nothing follows its department; where that says nothing either, the settings of
the cluster hold. The core follows the tree of queues by itself; this is for what it is told of each
workload, and for people, who read where a rule comes from.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from carrel_scheduler.core.settings import Settings, Strategy
from carrel_schema.answers import EffectiveProjectRule
from carrel_schema.objects import DepartmentSpec, NodeGroupLists, ProjectSpec

Origin = Literal["project", "department", "cluster"]
RULES: Final = (
    "preempt_min_runtime_seconds",
    "reclaim_min_runtime_seconds",
    "preemption_delay_seconds",
    "reservation_delay_seconds",
    "placement",
)


def effective_rules(
    project: ProjectSpec, department: DepartmentSpec | None, settings: Settings
) -> dict[str, EffectiveProjectRule]:
    """The effective rules of a project's work, with their origins, by field."""
    usual = _of_cluster(settings)
    found = {}
    for name in RULES:
        own = getattr(project, name)
        above = None if department is None else getattr(department, name)
        if own is not None:
            found[name] = EffectiveProjectRule(value=own, origin="project")
        elif above is not None:
            found[name] = EffectiveProjectRule(value=above, origin="department")
        else:
            found[name] = EffectiveProjectRule(value=usual[name])
    lists = node_groups(project, department)
    for name in ("training", "interactive"):
        if kept := getattr(lists, name):
            own = getattr(project.node_groups, name)
            origin: Origin = "project" if own else "department"
            found[f"node_groups.{name}"] = EffectiveProjectRule(
                value=", ".join(kept), origin=origin
            )
    return found


def node_groups(project: ProjectSpec, department: DepartmentSpec | None) -> NodeGroupLists:
    """The node groups to which a project's work is restricted.

    A project narrows what its department allows; with nothing in common, the department's hold.
    """
    above = NodeGroupLists() if department is None else department.node_groups
    own = project.node_groups
    return NodeGroupLists(
        training=_narrowed(own.training, above.training),
        interactive=_narrowed(own.interactive, above.interactive),
    )


def _narrowed(own: list[str], above: list[str]) -> list[str]:
    if not own or not above:
        return own or above
    return [name for name in own if name in above] or above


def _of_cluster(settings: Settings) -> Mapping[str, float | str | None]:
    packs = settings.gpu_strategy is Strategy.BIN_PACK
    return {
        "preempt_min_runtime_seconds": settings.min_runtime_s,
        "reclaim_min_runtime_seconds": settings.min_runtime_s,
        "preemption_delay_seconds": 0.0,
        "reservation_delay_seconds": settings.reservation_delay_s
        if settings.reservation_delay_s >= 0
        else None,
        "placement": "pack" if packs else "spread",
    }


def with_department(project: ProjectSpec, department: DepartmentSpec) -> ProjectSpec:
    """The project with the department's rules for waiting and placement, where it has none."""
    delay = project.preemption_delay_seconds
    return msgspec.structs.replace(
        project,
        placement=project.placement or department.placement,
        preemption_delay_seconds=department.preemption_delay_seconds if delay is None else delay,
    )
