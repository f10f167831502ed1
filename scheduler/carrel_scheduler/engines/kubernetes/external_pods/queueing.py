"""A team in the terms of the core."""

from collections.abc import Sequence

from carrel_scheduler.core.events import WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.requests import Request
from carrel_scheduler.engines.kubernetes.external_pods.teams import Slot, Team
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping


def queued_event(
    team: Team, slots: Sequence[Slot], stale_grace_s: float | None = None
) -> WorkloadQueued:
    """The event that has a team wait for room with these slots as its tasks.

    A slot whose next pod is awaited asks for what the others of its role ask.
    """
    grouping = team.grouping
    requests = [slot.request for slot in slots]
    return WorkloadQueued(
        uid=team.uid,
        name=team.name,
        project=grouping.project,
        user=grouping.user,
        priority=grouping.priority,
        preemptible=grouping.preemptible,
        request=requests[0],
        tasks=1,
        created_at=grouping.created_at,
        interactive=grouping.interactive,
        gang=None if team.loose else _structure(grouping, slots, requests),
        evicted_at=team.evicted_at,
        preemption_delay_s=grouping.preemption_delay_s,
        stale_grace_s=stale_grace_s,
    )


def _structure(grouping: Grouping, slots: Sequence[Slot], requests: Sequence[Request]) -> Group:
    tasks: dict[str, list[Request]] = {role.name: [] for role in grouping.roles}
    for slot, request in zip(slots, requests, strict=True):
        tasks[slot.role].append(request)
    leaves = {
        role.name: Group(
            name=role.name,
            requests=tuple(tasks[role.name]),
            min_tasks=min(role.least, len(tasks[role.name])),
        )
        for role in grouping.roles
        if tasks[role.name]
    }
    if grouping.structure is not None:
        filled = _filled(grouping.structure, leaves)
        if filled is not None:
            return filled
    groups = tuple(leaves.values())
    return groups[0] if len(groups) == 1 else Group(name=grouping.name, groups=groups)


def _filled(group: Group, leaves: dict[str, Group]) -> Group | None:
    """The structure with the tasks that are there; branches without any are left out."""
    if group.is_leaf:
        leaf = leaves.get(group.name)
        if leaf is None:
            return None
        return Group(
            name=group.name,
            requests=leaf.requests,
            min_tasks=leaf.min_tasks,
            level=group.level,
            growth=group.growth,
        )
    children = tuple(child for one in group.groups if (child := _filled(one, leaves)) is not None)
    if not children:
        return None
    least = None if group.min_groups is None else min(group.min_groups, len(children))
    return Group(name=group.name, groups=children, min_groups=least, level=group.level)
