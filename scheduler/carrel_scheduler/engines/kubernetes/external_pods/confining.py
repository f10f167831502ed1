"""Groups and roles of nodes bind all work, our own too: it asks only for nodes open to it."""

from collections.abc import Container
from dataclasses import replace
from typing import Final

from carrel_scheduler.core.devices.classes import Form, gpu_kind
from carrel_scheduler.core.events import WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.kubernetes.pods.node_groups import NodeGroups
from carrel_scheduler.engines.kubernetes.pods.nodes import (
    CPU_WORKER,
    GPU_WORKER,
    IN_GROUP,
    role_for,
)

Labels = tuple[tuple[str, frozenset[str]], ...]
_OURS: Final = (IN_GROUP, GPU_WORKER, CPU_WORKER)
"""Labels that are told of our own work here and nowhere else."""


def confined(event: WorkloadQueued, groups: NodeGroups) -> WorkloadQueued:
    """The event with the groups of nodes that are open to its work, as they are now."""
    found = groups.open_to(event.project, interactive=event.interactive)
    if found is None and not groups.version and not groups.by_role:
        return event
    labels: Labels = () if found is None else ((IN_GROUP, found),)
    if groups.by_role:
        labels = (*labels, role_for(gpus=_has_gpus(event)))
    gang = None if event.gang is None else _gang(event.gang, labels)
    return replace(event, request=_request(event.request, labels), gang=gang)


def confine_waiting(state: State, groups: NodeGroups, guests: Container[str]) -> None:
    """Have our own work that waits and holds nothing ask for the nodes that are open to it now.

    ``guests`` are uids of others' work, whose pods are read again by themselves.
    """
    for job in list(state.jobs.by_uid.values()):
        if job.uid in guests or not job.queued or job.rows or job.out:
            continue
        event = confined(job.spec, groups)
        if event != job.spec:
            state.apply(replace(event, evicted_at=job.evicted_at))


def _has_gpus(event: WorkloadQueued) -> bool:
    """Whether any of its tasks holds GPUs."""
    asked = [event.request] if event.gang is None else _requests(event.gang)
    return any(one.counted_milli or gpu_kind(one).form is not Form.NONE for one in asked)


def _requests(group: Group) -> list[Request]:
    return [*group.requests, *(one for inner in group.groups for one in _requests(inner))]


def _gang(group: Group, labels: Labels) -> Group:
    return replace(
        group,
        requests=tuple(_request(one, labels) for one in group.requests),
        groups=tuple(_gang(one, labels) for one in group.groups),
    )


def _request(request: Request, labels: Labels) -> Request:
    others = tuple(label for label in request.where.labels if label[0] not in _OURS)
    return replace(request, where=replace(request.where, labels=(*others, *labels)))
