"""Bringing the core in line with external pods: the shared state of a pass, and its steps.

Everything that happened to a workload in a pass is evaluated once, in this order: ended pods give
their allocations back, bound pods get theirs, and a workload that holds nothing is queued if enough
of its pods are there.
"""

import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from carrel_scheduler.core.events import (
    Outcome,
    TaskReleased,
    TaskReleasing,
    TaskStuck,
    WorkloadRemoved,
)
from carrel_scheduler.core.requests import Request
from carrel_scheduler.engines.contract import LATE_SECONDS
from carrel_scheduler.engines.external import ReconcilerAccess
from carrel_scheduler.engines.gpu_models import place_of
from carrel_scheduler.engines.kubernetes.external_pods import requests, usage
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    Bind,
    Evict,
    PodOrders,
    ReportPending,
)
from carrel_scheduler.engines.kubernetes.external_pods.nodes import ClusterNodes, taken_gpus
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import (
    Allocation,
    ExternalPod,
    ExternalPodIndex,
    ExternalTask,
    ExternalWorkload,
)
from carrel_scheduler.engines.kubernetes.external_pods.requests import (
    PendingRequests,
    asks_for,
    queued_event,
)
from carrel_scheduler.engines.kubernetes.external_pods.usage import (
    EVICTED,
    UNSCHEDULABLE,
)
from carrel_scheduler.engines.kubernetes.external_pods.workload_constraints import WorkloadVolumes
from carrel_scheduler.engines.kubernetes.external_pods.workload_pods import TaskPodIndex
from carrel_scheduler.engines.kubernetes.pods import labels
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.provisioning.planning import NodeRequests
from carrel_scheduler.quarantine import Quarantine

log = logging.getLogger(__name__)

RETURN_SECONDS: Final = 60.0
"""Seconds for which the next pod of an evicted one is awaited."""


def reconcile_workload(current: "ReconcilePass", workload: ExternalWorkload) -> None:
    """Bring the core in line with the pods of one workload."""
    for task in workload:
        _finish(current, workload, task)
    for task in workload:
        _track_termination(current, workload, task)
    if workload.uid not in current.index.workloads:
        _dequeue(current, workload)
        return
    if not workload.holding:
        _queue(current, workload)
    if workload.queued:
        for task in workload:
            _allocate(current, workload, task)


def release(
    current: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask, outcome: Outcome
) -> None:
    """Free the allocation of a task."""
    if task.allocation is None:
        return
    current.state.apply(TaskReleased(workload.uid, task.index, outcome, current.now))
    current.row(workload, task, "pending" if outcome is Outcome.AGAIN else "ended")
    current.left(task)
    current.nodes.claims_changed(task.pod, task.allocation.node)
    task.allocation, task.releasing, task.sent, task.stuck_at = None, False, False, None
    if outcome is Outcome.AGAIN:
        workload.evicted_at = current.now
        if task.pod is not None and not task.pod.node:
            current.pending_requests.read(workload, task)
    else:
        workload.changed = True
    if not workload.single and current.stale_grace_s >= 0:
        current.wake(current.now + current.stale_grace_s, workload)


def mark_releasing(
    current: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask
) -> None:
    """Report to the core that the allocation of a task is being released."""
    if task.allocation is not None and not task.releasing:
        current.state.apply(TaskReleasing(workload.uid, task.index))
        task.releasing = True
        grace_s = task.pod.grace_seconds if task.pod is not None else 0.0
        task.stuck_at = current.now + grace_s + LATE_SECONDS
        current.wake(task.stuck_at, workload)


def bind_pod(current: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask) -> None:
    """Have the pod of a task bound where the task is allocated."""
    if task.pod is None or task.allocation is None or task.sent or task.pod.node:
        return
    if not current.requests_unchanged(task):
        current.requeue_changed(workload, task)
        return
    if not current.has_devices(task.pod, task.allocation.node, task.counted):
        release(current, workload, task, Outcome.AGAIN)
        current.index.touch(workload)
        return
    task.sent = True
    current.order_binding(task.pod, workload.grouping, task.allocation, task.counted)


def _finish(current: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask) -> None:
    """Free the allocation of a task whose pod has ended; it awaits the next pod or is closed."""
    one = task.pod
    if one is None and task.allocation is None and current.index.promote(task):
        current.pending_requests.read(workload, task)
        return
    if one is not None and one.outcome is None and not (one.ending and not one.node):
        return
    if one is None and task.awaits_until is not None:
        if current.now >= task.awaits_until:
            _close(current, workload, task, Outcome.GONE)
        return
    outcome = one.outcome if one is not None else None
    if outcome is Outcome.SUCCEEDED:
        _close(current, workload, task, outcome)
    elif _comes_again(workload, task):
        task.evicted = False
        release(current, workload, task, Outcome.AGAIN)
        if one is not None:
            current.index.remove_pod(one.ref.uid)
        if workload.single and current.index.replace_pod(workload, task):
            return
        if current.index.promote(task):
            current.pending_requests.read(workload, task)
            return
        until = current.now + RETURN_SECONDS
        current.index.await_replacement(workload, task, until)
        current.wake(until, workload)
    else:
        _close(current, workload, task, outcome or Outcome.GONE)
    task.evicted = False


def _comes_again(workload: ExternalWorkload, task: ExternalTask) -> bool:
    """Whether a controller will create the next pod of a task that was allocated."""
    if not workload.grouping.controlled or not workload.queued:
        return False
    return task.evicted or (not workload.single and task.allocation is not None)


def _close(
    current: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask, outcome: Outcome
) -> None:
    release(current, workload, task, outcome)
    successor = current.index.take_successor(task)
    current.index.close(workload, task)
    workload.changed = True
    _place_apart(current, successor)


def _place_apart(current: "ReconcilePass", pod: ExternalPod | None) -> None:
    """Give a pod that waited for the end of another one a task of its own."""
    if pod is not None:
        current.pending_requests.read(*current.index.add(pod))


def _track_termination(
    current: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask
) -> None:
    if task.pod is not None and task.pod.ending:
        mark_releasing(current, workload, task)
    if task.releasing and task.stuck_at is not None and task.stuck_at <= current.now:
        current.state.apply(TaskStuck(workload.uid, task.index))
        task.stuck_at = None
        _place_apart(current, current.index.take_successor(task))
        log.warning("a terminating pod of %s still exists", workload.uid)


def _queue(current: "ReconcilePass", workload: ExternalWorkload) -> None:
    """Queue a workload without allocations if it can start, otherwise dequeue it."""
    unknown = any(
        task.pod is not None
        and task.pod.node
        and not requests.knows_node(current.state, task.pod.node)
        for task in workload.tasks
    )
    bound = any(task.pod is not None and task.pod.node for task in workload.tasks)
    if bound and not unknown and not workload.complete():
        _await_the_missing(current, workload)
    elif unknown or not workload.complete() or current.now < workload.not_before:
        _dequeue(current, workload)
        return
    wanted = workload.asking()
    if workload.queued and not workload.changed and len(wanted) == len(workload.queued_tasks):
        return
    _dequeue(current, workload)
    for index, task in enumerate(wanted):
        task.index, task.counted = index, task.request
    workload.queued_tasks, workload.changed = tuple(wanted), False
    current.state.apply(queued_event(workload, wanted, current.stale_grace_s))
    workload.queued = True
    current.queued(workload)


def _await_the_missing(current: "ReconcilePass", workload: ExternalWorkload) -> None:
    """Add tasks for the missing pods of a gang that is found running in part."""
    for role in workload.grouping.roles:
        there = [task for task in workload.tasks if task.role == role.name]
        alike = next(iter(there or workload.tasks)).request
        for _ in range(role.least - len(there)):
            until = current.now + RETURN_SECONDS
            workload.tasks.append(ExternalTask(role.name, awaits_until=until, request=alike))
            current.wake(until, workload)
            workload.changed = True


def _dequeue(current: "ReconcilePass", workload: ExternalWorkload) -> None:
    if workload.queued:
        current.state.apply(WorkloadRemoved(workload.uid))
        workload.queued = False


def _allocate(current: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask) -> None:
    """Allocate what a bound pod uses, whoever bound it; bind a pod whose task is allocated."""
    one = task.pod
    if one is None:
        return
    if not one.node:
        bind_pod(current, workload, task)
        return
    if task.allocation is not None and task.allocation.node == one.node:
        return
    if task not in workload.queued_tasks:
        current.count_as_unmanaged(workload, task)
        return
    if task.allocation is not None:
        release(current, workload, task, Outcome.AGAIN)
    at = min(one.started_at or current.now, current.now)
    found = requests.place_found(current.state, workload.uid, task.index, one, task.request, at)
    if found is None:
        log.warning(
            "no capacity is known on %s for pod %s, which runs there", one.node, one.ref.name
        )
        current.count_as_unmanaged(workload, task)
        return
    task.allocation, task.since = found, current.now
    current.row(workload, task, "running")
    _track_termination(current, workload, task)


STALE_SECONDS: Final = 60.0
REPORT_AGAIN_SECONDS: Final = 30.0


def _no_executor(orders: PodOrders) -> None:
    raise RuntimeError(f"no executor carries out {orders}")


class ReconcilePass:
    """The state that event handlers and reconcile steps share.

    Args:
        access: to the reconciler.
        stale_grace_s: so long a gang may run with too few of its pods.
        places: what decides where pods may run beside the core.
        storage_claim: claim of every project that all its tasks use but workspaces; empty: none.
    """

    def __init__(
        self,
        access: ReconcilerAccess,
        stale_grace_s: float,
        places: PlacementConstraints,
        storage_claim: str,
    ) -> None:
        self.state = access.state
        self.index = ExternalPodIndex()
        self.task_pods = TaskPodIndex()
        self.orders = PodOrders()
        self.places = places
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.nodes = ClusterNodes(
            self.places.groups, access.withheld, self.places.devices, self.holds
        )
        self.places.devices.held = self._held_gpus
        self.places.devices.is_task = self._is_placed_task
        self.pending_requests = PendingRequests(self.places)
        self.volumes = WorkloadVolumes(self.places, storage_claim)
        self.node_requests: NodeRequests | None = None
        self.quarantine = access.quarantine or Quarantine(lambda: self.now)
        self.draining = access.draining
        self.now = 0.0
        self.epoch = 0
        self.ready = False
        self.stale_grace_s = stale_grace_s
        self.listeners: list[Callable[[], None]] = []
        self.execute: Callable[[PodOrders], None] = _no_executor
        self.attempts: Counter[str] = Counter()
        self.reported: dict[str, tuple[str, float]] = {}
        self.node_changed, self._queued = access.node_changed, access.queued
        self.timers: list[tuple[float, int, ExternalWorkload]] = []
        self.numbers = itertools.count()

    def _held_gpus(self, node: str) -> int:
        slot = self.state.nodes.slots.get(node)
        return 0 if slot is None else len(taken_gpus(self.state, slot))

    def notify(self) -> None:
        """Groups may have another status by now."""
        for listener in self.listeners:
            listener()

    def row(self, workload: ExternalWorkload, task: ExternalTask, phase: str) -> None:
        """Write the row of what a task holds from now on."""
        nodes, place = self.state.nodes, task.allocation
        slot = None if place is None else nodes.slots.get(place.node)
        row = usage.row(
            workload,
            task,
            phase,
            now=self.now,
            epoch=self.epoch,
            fact=None if slot is None else nodes.fact(slot),
            place_of=partial(place_of, self.state),
        )
        self.orders.rows.append(row)

    def requests_unchanged(self, task: ExternalTask) -> bool:
        """Whether the task's pod still requests the allocated resources."""
        one = task.pod
        return one is not None and asks_for(one.manifest, task.counted, self.places.devices)

    def has_devices(self, pod: ExternalPod, node: str, counted: Request) -> bool:
        """Whether a node has what the claims of a pod ask for free, as many GPUs as counted."""
        if not self.places.devices.asks(pod.manifest):
            return True
        found = self.places.devices.fit(pod.manifest, node, counted.gpus, counted.counted_milli)
        return found is not None

    def holds(self, uid: str) -> bool:
        """Whether the devices of a pod's claims are counted as its workload's."""
        home = self.index.task_of(uid)
        if home is None:
            return self._is_placed_task(uid)
        task = home[1]
        return task.allocation is not None or (task.pod is not None and bool(task.pod.node))

    def _is_placed_task(self, uid: str) -> bool:
        own = self.task_pods.task_of(uid)
        job = None if own is None else self.state.jobs.by_uid.get(own.workload_uid)
        return own is not None and job is not None and own.index in job.rows

    def requeue_changed(self, workload: ExternalWorkload, task: ExternalTask) -> None:
        """Requeue a task whose pod requests other resources than were allocated.

        The core learns what a gang asks for only while the gang holds nothing: one that grew while
        others run goes by itself.
        """
        release(self, workload, task, Outcome.AGAIN)
        if not workload.single and workload.holding:
            until = self.now + RETURN_SECONDS
            self.wake(until, workload)
            home = self.index.split_from_gang(workload, task, until)
            if home is not None:
                self.pending_requests.read(*home)
        else:
            workload.changed = True
        self.index.touch(workload)

    def order_binding(
        self, pod: ExternalPod, grouping: Grouping, place: Allocation, counted: Request
    ) -> None:
        """Order a binding; placement constraints count the pod there from now on."""
        self.places.put_pod(pod.manifest, place.node)
        first = self.places.decide(pod.manifest, place.node)
        devices = self.places.devices
        gpus, parts_milli = len(place.devices), counted.counted_milli
        claims = devices.decide(pod.manifest, place.node, gpus, parts_milli)
        whom = labels.counted_annotation(grouping)
        profile = requests.profile_at(self.state, place.node, counted) if place.slots else None
        self.orders.binds.append(
            Bind(
                pod.ref,
                place.node,
                place.devices,
                pod.manifest,
                first,
                whom,
                claims,
                mig_profile="" if profile is None else profile.name,
                slots=place.slots,
            )
        )

    def left(self, task: ExternalTask) -> None:
        """Forget the placement of a task's pod."""
        one = task.pod
        if one is not None and not one.node:
            self.places.drop_pod(one.ref.uid)

    def wake(self, when: float, workload: ExternalWorkload) -> None:
        """Set a timer for the next reconcile of the workload."""
        heapq.heappush(self.timers, (when, next(self.numbers), workload))

    def queued(self, workload: ExternalWorkload) -> None:
        """The workload waits from now on."""
        self._queued(workload.uid)

    def explain_again(self, uid: str) -> None:
        """Write the reason of a waiting workload again, at once."""
        for task in self.index.workloads.get(uid, ()):
            if task.pod is not None:
                self.reported.pop(task.pod.ref.uid, None)
        self._queued(uid)

    def count_as_unmanaged(self, workload: ExternalWorkload, task: ExternalTask) -> None:
        """Count a bound pod as unmanaged because it fits no allocation in the core."""
        one = task.pod
        self.index.close(workload, task)
        if one is not None:
            self.nodes.claims_changed(one, one.node)
            self.nodes.put_unmanaged(one.manifest)

    def evict(
        self, workload: ExternalWorkload, task: ExternalTask, reason: str, message: str
    ) -> None:
        """Evict the pod of a task; an allocation without a pod is freed at once."""
        if task.allocation is None or task.releasing:
            return
        mark_releasing(self, workload, task)
        task.evicted, workload.gives_way = True, message
        self.notify()
        if task.pod is None:
            release(self, workload, task, Outcome.AGAIN)
            return
        one = task.pod
        self.attempts[EVICTED] += 1
        self.orders.evictions.append(Evict(one.ref, reason, message, one.grace_seconds))

    def report_pending(self, pod: ExternalPod, token: str, message: str) -> bool:
        """Order a pending pod's reason to be written; returns whether the reason is new.

        The same kind of reason with other amounts is written again after a while only.
        """
        before, at = self.reported.get(pod.ref.uid, ("", 0.0))
        again = before == token and 0.0 <= self.now - at < REPORT_AGAIN_SECONDS
        if pod.told == message or again:
            return False
        self.reported[pod.ref.uid] = (token, self.now)
        self.attempts[UNSCHEDULABLE] += 1
        self.orders.pending_reports.append(ReportPending(pod.ref, token, message))
        return True
