"""Nodes that are open to workloads: node groups, roles, and the reach of their volumes.

A volume may be reachable from some nodes only; one that a single node may use (``ReadWriteOnce``)
is there for pods of the node where it is in use. Queued workloads are updated when either changes.
A claim that is missing or has no volume yet constrains nothing: the engine takes care of it when
the task starts. So it is with the claim of a project's checkpoints, which all its tasks use.
"""

from collections.abc import Collection, Container, Iterable
from dataclasses import replace
from typing import Final

from carrel_scheduler.core.devices.classes import GpuForm, gpu_kind
from carrel_scheduler.core.events import WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.requests import GPU_RESOURCE, IN_GROUP, TASK_GPUS, Request
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.kubernetes.pods.node_groups import NodeGroups
from carrel_scheduler.engines.kubernetes.pods.nodes import (
    BY_CLAIMS,
    BY_PLUGIN,
    CPU_WORKER,
    GPU_WORKER,
    role_for,
)
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.pods.resource_requests import (
    CLAIMED_GPUS,
    GPU_RESOURCES,
)
from carrel_schema.names import namespace_of
from carrel_schema.objects import Workload, WorkloadSpec

Labels = tuple[tuple[str, frozenset[str]], ...]
_WHOLE: Final = (GpuForm.NONE, GpuForm.WHOLE)
_OURS: Final = (IN_GROUP, GPU_RESOURCE, TASK_GPUS, GPU_WORKER, CPU_WORKER)
"""Labels that only this module adds to workloads."""


def confined(event: WorkloadQueued, groups: NodeGroups) -> WorkloadQueued:
    """The event with the groups of nodes that are open to its work, as they are now."""
    found = groups.open_to(event.project, interactive=event.interactive)
    if found is None and not groups.version and not groups.by_role:
        return event
    labels: Labels = () if found is None else ((IN_GROUP, found),)
    if groups.claimed_gpus and _takes_devices(event):
        labels = (*labels, _gpus_for(event, groups))
    if groups.by_role:
        labels = (*labels, role_for(gpus=_has_gpus(event)))
    gang = None if event.gang is None else _labelled_gang(event.gang, labels)
    return replace(event, request=_labelled(event.request, labels), gang=gang)


def confine_waiting(state: State, groups: NodeGroups, external: Container[str]) -> None:
    """Update the constraints of pending workloads to the nodes that are open to them now.

    ``external`` are uids of external workloads, whose pods are read again by themselves.
    """
    for job in list(state.jobs.by_uid.values()):
        if job.uid in external or not job.queued or job.rows or job.out:
            continue
        event = confined(job.spec, groups)
        if event != job.spec:
            state.apply(replace(event, evicted_at=job.evicted_at))


def _gpus_for(event: WorkloadQueued, groups: NodeGroups) -> tuple[str, frozenset[str]]:
    """The label of nodes that give their GPUs to this work, by device plugins or by claims."""
    kinds = [gpu_kind(one) for one in _requests_of(event)]
    if not groups.tasks_claim or any(kind.form is GpuForm.MIG for kind in kinds):
        return GPU_RESOURCE, frozenset(GPU_RESOURCES) - {CLAIMED_GPUS}
    found = {one.label for one in groups.terms if all(map(one.gives, kinds))}
    if all(kind.form in _WHOLE for kind in kinds):
        found.add(BY_CLAIMS)
    return TASK_GPUS, frozenset({BY_PLUGIN, *found})


def _takes_devices(event: WorkloadQueued) -> bool:
    """Whether any task of the workload holds GPUs of its node by number."""
    return any(gpu_kind(one).form is not GpuForm.NONE for one in _requests_of(event))


def _has_gpus(event: WorkloadQueued) -> bool:
    """Whether any task of the workload holds GPUs, or MIG instances that its node offers."""
    return _takes_devices(event) or any(one.counted_milli for one in _requests_of(event))


def _requests_of(event: WorkloadQueued) -> list[Request]:
    return [event.request] if event.gang is None else _all_requests(event.gang)


def _all_requests(group: Group) -> list[Request]:
    return [*group.requests, *(one for inner in group.groups for one in _all_requests(inner))]


def _labelled_gang(group: Group, labels: Labels) -> Group:
    return replace(
        group,
        requests=tuple(_labelled(one, labels) for one in group.requests),
        groups=tuple(_labelled_gang(one, labels) for one in group.groups),
    )


def _labelled(request: Request, labels: Labels) -> Request:
    others = tuple(label for label in request.where.labels if label[0] not in _OURS)
    return replace(request, where=replace(request.where, labels=(*others, *labels)))


Claims = tuple[str, ...]


def asked_claims(spec: WorkloadSpec) -> Claims:
    """The volume claims of the workload; none on one machine, where volumes are folders."""
    found = (source.partition("/")[0] for source, _ in spec.volumes)
    return tuple(dict.fromkeys(claim for claim in found if claim))


class WorkloadVolumes:
    """The volumes of workloads, and the nodes where they can be reached.

    Args:
        places: asked where volumes can be reached.
        storage: claim of every project that all its tasks use but workspaces; empty: none.
    """

    def __init__(self, places: PlacementConstraints, storage: str = "") -> None:
        self._storage = storage
        self._places = places
        self._claims: dict[str, Claims] = {}
        self._seen = (-1, -1)

    def claims_of(self, workload: Workload) -> Claims:
        """The claims that constrain the nodes of a workload."""
        found, storage = asked_claims(workload.spec), self._storage
        if not storage or storage in found or workload.spec.kind == "workspace":
            return found
        # One of many nodes is reached from all: nobody needs to follow what becomes of it.
        tied = self._places.is_of_one_node(namespace_of(workload.meta.project), storage)
        return (*found, storage) if tied else found

    def confined(self, event: WorkloadQueued, claims: Claims) -> WorkloadQueued:
        """The event with the nodes from which its volumes can be reached, as things are."""
        if not claims:
            return event
        nodes = self._places.reach(namespace_of(event.project), claims)
        gang = None if event.gang is None else _gang(event.gang, nodes)
        return replace(event, request=_request(event.request, nodes), gang=gang)

    def follow(self, uid: str, claims: Claims) -> None:
        """Begin to update the constraints of a pending workload."""
        if claims:
            self._claims[uid] = claims

    def update(self, state: State) -> None:
        """Update the constraints of pending workloads to the nodes that reach their volumes now."""
        seen = self._places.volumes_version
        if seen == self._seen or not self._claims:
            return
        self._seen = seen
        for uid, claims in list(self._claims.items()):
            job = state.jobs.by_uid.get(uid)
            if job is None:
                del self._claims[uid]
                continue
            if not job.queued or job.rows or job.out:
                continue
            event = self.confined(job.spec, claims)
            if event != job.spec:
                state.apply(replace(event, evicted_at=job.evicted_at))


def _gang(group: Group, nodes: Collection[str] | None) -> Group:
    return replace(
        group,
        requests=_requests(group.requests, nodes),
        groups=tuple(_gang(one, nodes) for one in group.groups),
    )


def _requests(requests: Iterable[Request], nodes: Collection[str] | None) -> tuple[Request, ...]:
    return tuple(_request(one, nodes) for one in requests)


def _request(request: Request, nodes: Collection[str] | None) -> Request:
    found = None if nodes is None else frozenset(nodes)
    return replace(request, where=replace(request.where, nodes=found))
