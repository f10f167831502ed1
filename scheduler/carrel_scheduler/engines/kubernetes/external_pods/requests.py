"""The resource requests of pending pods, and the workload's request in the terms of the core.

Requests are evaluated again when what they depend on has changed. Bound pods get their allocation
in the core here: the devices that their binding names, or equivalent ones.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from carrel_scheduler.core.devices.classes import gpu_kind
from carrel_scheduler.core.devices.device_choice import profile_on
from carrel_scheduler.core.devices.shares import share_of_memory
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import NodeSet, TaskPlaced, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.mig import Profile, model_of
from carrel_scheduler.core.requests import ANYWHERE, Request
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import (
    Allocation,
    ExternalPod,
    ExternalTask,
    ExternalWorkload,
)
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import (
    PlacementConstraints,
    PlacementRequest,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import needs_of, request_of
from carrel_scheduler.engines.kubernetes.pods.types import Pod


def knows_node(state: State, node: str) -> bool:
    """Whether the core has a node of this name."""
    return node in state.nodes.slots


def place_found(
    state: State, uid: str, index: int, pod: ExternalPod, request: Request, at: float
) -> Allocation | None:
    """Allocate what a bound pod uses; returns the allocation, ``None`` when there is too little.

    Bindings by others name no devices, and two of them may claim the same; then any free ones do:
    a device that is counted wrongly is better than one that is counted twice. A MIG instance has
    the place that its binding names, or none.
    """
    for devices, slots in _choices(state, pod, request):
        try:
            state.apply(TaskPlaced(uid, index, pod.node, devices, at, slots))
        except InvalidEvent:
            continue
        return Allocation(pod.node, devices, slots)
    return None


def _choices(state: State, pod: ExternalPod, request: Request) -> list[tuple[tuple[int, ...], int]]:
    named = [] if pod.devices is None else [(pod.devices, pod.slots)]
    if profile_at(state, pod.node, request) is not None:
        return named
    others = free_devices(state, pod.node, request)
    return named if others is None else [*named, (others, 0)]


def free_devices(state: State, node: str, request: Request) -> tuple[int, ...] | None:
    """The first free devices of a node for a request; ``None`` when there are too few."""
    slot = state.nodes.slots[node]
    count, share = devices_wanted(request, state.nodes.fact(slot))
    free = state.nodes.free.devices[: int(state.nodes.devices[slot]), slot]
    found = tuple(index for index, left in enumerate(free.tolist()) if left >= share)
    return found[:count] if len(found) >= count else None


def profile_at(state: State, node: str, request: Request) -> Profile | None:
    """The profile of the MIG instance that serves a request on a node; ``None``: none does."""
    slot = state.nodes.slots.get(node)
    return None if slot is None else _profile_on(state.nodes.fact(slot), request)


def _profile_on(fact: NodeSet | None, request: Request) -> Profile | None:
    if fact is None or not fact.mig_model:
        return None
    return profile_on(gpu_kind(request), model_of(fact.mig_model))


def devices_wanted(request: Request, fact: NodeSet | None) -> tuple[int, int]:
    """The number of devices of a node that a request takes, and thousandths of each.

    A share that is asked for in memory is one of GPUs with so much of it, or the MIG instance with
    so much; all of each where nobody knows how much they have.
    """
    if (profile := _profile_on(fact, request)) is not None:
        return 1, profile.milli
    if request.share_milli:
        return request.devices, request.share_milli
    if request.gpu_memory_mib:
        memory_mib = 0 if fact is None else fact.gpu_memory_mib
        return request.devices, share_of_memory(request.gpu_memory_mib, memory_mib) or MILLI
    return (1 if request.mig_profile else request.gpus), MILLI


log = logging.getLogger(__name__)


def asks_for(pod: Pod, counted: Request, devices: DeviceClaims) -> bool:
    """Whether a pod asks for the amounts of a request, wherever it may run."""
    try:
        access = devices.access(pod)
        asked = request_of(needs_of(pod, access.gpus, access.instead, access.parts_milli), ANYWHERE)
    except PodRefused:
        return False
    return asked == replace(counted, where=ANYWHERE)


class PendingRequests:
    """Reads pods into requests of the core."""

    def __init__(self, places: PlacementConstraints) -> None:
        self._places = places
        self._version = places.version
        self._manner = places.manner
        self._follow: dict[ExternalTask, ExternalWorkload] = {}

    def read(self, workload: ExternalWorkload, task: ExternalTask) -> None:
        """Read the requests of a task's pod as of now into the task."""
        one = task.pod
        if one is None or task.allocation is not None:
            return
        self._follow.pop(task, None)
        if one.refusal:
            task.waits = one.refusal
            return
        try:
            belongs = workload.grouping
            groups = self._places.groups.open_to(belongs.project, interactive=belongs.interactive)
            ask = self._places.ask(one.manifest, groups, together=not workload.single)
        except PodRefused as error:
            task.waits = error.sentence
            if one.node:
                self._count_bound(task, one.manifest)
            return
        self._note(workload, task, ask)

    def _note(self, workload: ExternalWorkload, task: ExternalTask, ask: PlacementRequest) -> None:
        waits = f"It waits: {ask.waits}." if ask.waits else ""
        if (task.request, task.waits) != (ask.request, waits):
            task.request, task.waits = ask.request, waits
            workload.changed = True
        task.checked = ask.checked
        if ask.follows and task.pod is not None and not task.pod.node:
            self._follow[task] = workload

    def _count_bound(self, task: ExternalTask, pod: Pod) -> None:
        """A bound pod holds the requests of its containers, whatever its annotations say."""
        bare = msgspec.structs.replace(pod.metadata, annotations={})
        try:
            claimed = self._places.devices.access(pod)
            bare_pod = msgspec.structs.replace(pod, metadata=bare)
            needs = needs_of(bare_pod, claimed.gpus, claimed.instead, claimed.parts_milli)
        except PodRefused as error:
            log.warning("the use of pod %s is not counted: %s", pod.metadata.name, error)
            return
        task.request = request_of(needs, ANYWHERE)

    def again(self, workloads: Iterable[ExternalWorkload]) -> list[ExternalWorkload]:
        """Teams whose pods may ask for something else by now; they were read again."""
        version, manner = self._places.version, self._places.manner
        if (version, manner) == (self._version, self._manner):
            return []
        if manner != self._manner:
            asked = [(task, workload) for workload in workloads for task in workload.tasks]
        else:
            asked = list(self._follow.items())
        self._version, self._manner = version, manner
        touched: dict[ExternalWorkload, None] = {}
        for task, workload in asked:
            if task.pod is None or task.pod.node or task.allocation is not None:
                self._follow.pop(task, None)
                continue
            self.read(workload, task)
            touched[workload] = None
        return list(touched)

    def fits(self, task: ExternalTask, node: str) -> bool:
        """Whether a node still serves a pod, now that others have been given their places."""
        one = task.pod
        if one is None or not (task.checked or self._places.manner != self._manner):
            return True
        return self._places.still_fits(one.manifest, node)


def queued_event(
    workload: ExternalWorkload, tasks: Sequence[ExternalTask], stale_grace_s: float | None = None
) -> WorkloadQueued:
    """The event that queues a workload of these tasks.

    A task whose next pod is awaited asks for what the others of its role ask.
    """
    grouping = workload.grouping
    requests = [task.request for task in tasks]
    return WorkloadQueued(
        uid=workload.uid,
        name=workload.name,
        project=grouping.project,
        user=grouping.user,
        priority=grouping.priority,
        preemptible=grouping.preemptible,
        request=requests[0],
        tasks=1,
        created_at=grouping.created_at,
        interactive=grouping.interactive,
        gang=None if workload.single else _structure(grouping, tasks, requests),
        evicted_at=workload.evicted_at,
        preemption_delay_s=grouping.preemption_delay_s,
        stale_grace_s=stale_grace_s,
    )


def _structure(
    grouping: Grouping, tasks: Sequence[ExternalTask], requests: Sequence[Request]
) -> Group:
    found = _group_of(grouping, tasks, requests)
    return replace(found, whole=True) if grouping.whole else found


def _group_of(
    grouping: Grouping, tasks: Sequence[ExternalTask], requests: Sequence[Request]
) -> Group:
    by_role: dict[str, list[Request]] = {role.name: [] for role in grouping.roles}
    for task, request in zip(tasks, requests, strict=True):
        by_role[task.role].append(request)
    leaves = {
        role.name: Group(
            name=role.name,
            requests=tuple(by_role[role.name]),
            min_tasks=min(role.least, len(by_role[role.name])),
        )
        for role in grouping.roles
        if by_role[role.name]
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
