"""Event handlers of external pods: pods and nodes come, change and go, projects appear.

Only the index is updated at once; the core follows in the reconcile step.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from carrel_scheduler.core.events import Outcome, TaskStuck, TopologySet
from carrel_scheduler.engines.kubernetes.external_pods import conditions, reconcile_pass
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    BindingFailed,
    EvictionRefused,
    ExternalEvent,
    ExternalPodSeen,
    NodeDeleted,
    NodeEvent,
    NodeGroupDeleted,
    NodeGroupSeen,
    NodeSeen,
    PodDeleted,
    ReportEvent,
    TaskPodSeen,
    TopologyDeleted,
    TopologySeen,
    UnmanagedPodSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import (
    ExternalPod,
    ExternalTask,
    ExternalWorkload,
    belongs_to,
)
from carrel_scheduler.engines.kubernetes.external_pods.reconcile_pass import (
    REPORT_AGAIN_SECONDS,
    ReconcilePass,
)
from carrel_scheduler.engines.kubernetes.external_pods.usage import ERROR, SCHEDULED
from carrel_scheduler.engines.kubernetes.external_pods.workload_constraints import confine_waiting
from carrel_scheduler.engines.kubernetes.pods.labels import level_key
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup
from carrel_scheduler.engines.kubernetes.provisioning.messages import (
    RequestGone,
    RequestRefused,
    RequestSeen,
    RequestsKnown,
)
from carrel_scheduler.quarantine import Source
from carrel_schema.groups import TopologySpec
from carrel_schema.objects import NodeGroupLists

log = logging.getLogger(__name__)

MOST_FAILURES: Final = 5
AGAIN_SECONDS: Final = 0.25
REFUSED_SECONDS: Final = 30.0
MISSING_SECONDS: Final = 10.0
"""Seconds after which the pods of a gang are told that others of it are missing."""
"""The pause of a pod whose binding was refused for good."""


class PodEventHandlers:
    """See the module; changes are added to the reconcile pass."""

    def __init__(self, reconcile_pass: ReconcilePass) -> None:
        self._pass = reconcile_pass

    def handle(self, events: Iterable[Any], now: float) -> None:
        """Handle an event; the core is updated in ``reconcile``."""
        self._pass.now = now
        for one in events:
            with self._pass.quarantine.guard(*_about(one)):
                self._handle(one)

    def _handle(self, news: ExternalEvent) -> None:
        match news:
            case ExternalPodSeen(pod):
                self._external_pod(pod)
            case PodDeleted(uid):
                self._gone(uid)
            case UnmanagedPodSeen(pod):
                self._pass.nodes.put_unmanaged(pod)
                self._pass.places.put_pod(pod)
            case TaskPodSeen(pod):
                self._pass.places.put_pod(pod)
                if self._pass.task_pods.see(pod) and pod.spec.node_name:
                    self._pass.nodes.claims_of_task_changed(pod)
            case BindingFailed():
                self._binding_failed(news)
            case EvictionRefused():
                self._eviction_refused(news)
            case AllReconciled():
                self._begin()
            case RequestSeen() | RequestGone() | RequestsKnown() | RequestRefused():
                if self._pass.node_requests is not None:
                    self._pass.node_requests.see(news, self._pass.now)
            case _:
                self._of_nodes(news)

    def _of_nodes(self, news: NodeEvent) -> None:
        match news:
            case NodeSeen(node):
                self._node(node)
            case NodeDeleted(name):
                self._pass.nodes.leave(name)
                self._pass.places.drop_node(name)
                self._lose_pods(name, ending_only=False)
            case NodeGroupSeen(group):
                self._group(group)
            case NodeGroupDeleted(name):
                self._pass.places.groups.drop(name)
                self._regroup()
            case TopologySeen(topology):
                self._levels(topology.metadata.name, topology.spec)
            case TopologyDeleted(name):
                self._levels(name, None)

    def _begin(self) -> None:
        """The initial state is complete."""
        self._pass.nodes.leave_unknown(self._pass.state)
        confine_waiting(self._pass.state, self._pass.places.groups, self._pass.index.workloads)
        self._pass.ready = True

    def _external_pod(self, pod: ExternalPod) -> None:
        uid = pod.ref.uid
        if uid in self._pass.index.tombstones:
            return
        if pod.node:
            self._pass.places.put_pod(pod.manifest)
        home = self._pass.index.task_of(uid)
        before = None if home is None else home[1].pod
        if home is not None and before is not None and before.refusal and not pod.refusal:
            self._pass.index.close(*home)
            home = None
        if home is not None and _is_of_another(home[1], pod):
            self._leave(*home)
            home = None
        if home is not None:
            if home[1].sent and pod.node and before is not None and not before.node:
                self._pass.attempts[SCHEDULED] += 1
            self._pass.pending_requests.read(*self._pass.index.update(pod))
            if pod.ending and self._pass.nodes.is_lost(pod.node):
                self._add_tombstone(uid)
            return
        if pod.outcome is not None:
            self._found_queue(uid)
            self._pass.nodes.drop_unmanaged(uid)
            return
        if pod.ending and not pod.node:
            return
        if not self._has_project(pod.grouping.project):
            self._without_queue(pod)
            return
        self._found_queue(uid)
        self._pass.nodes.drop_unmanaged(uid)
        self._arrive(pod)

    def _leave(self, workload: ExternalWorkload, task: ExternalTask) -> None:
        """Have a pod leave a workload; the others of it go on."""
        self._pass.index.close(workload, task)
        workload.changed = True
        self._pass.index.touch(workload)

    def _arrive(self, pod: ExternalPod) -> None:
        workload, task = self._pass.index.add(pod)
        if task.successor is pod and task.pod is not None:
            told = conditions.takes_the_place(task.pod.ref.name)
            self._pass.report_pending(pod, conditions.QUEUED, told)
        self._pass.pending_requests.read(workload, task)
        self.report_missing(task)

    def _gone(self, uid: str) -> None:
        self._pass.index.tombstones.discard(uid)
        self._found_queue(uid)
        self._pass.nodes.drop_unmanaged(uid)
        self._pass.places.drop_pod(uid)
        self._pass.reported.pop(uid, None)
        self._pass.task_pods.gone(uid)
        self._pass.index.remove_pod(uid)

    def _node(self, node: Node) -> None:
        name, groups = node.metadata.name, self._pass.places.groups.version
        new = self._pass.nodes.see(node)
        self._pass.places.set_node(self._pass.nodes.described(name))
        if groups != self._pass.places.groups.version:
            confine_waiting(self._pass.state, self._pass.places.groups, self._pass.index.workloads)
        if new:
            self._touch_pods(name)
        elif self._pass.nodes.is_lost(name):
            self._lose_pods(name, ending_only=True)

    def _group(self, group: NodeGroup) -> None:
        if self._pass.places.groups.set(group.metadata.name, group.spec):
            self._regroup()

    def follow_devices(self) -> None:
        """Devices of nodes, or their use, changed; our own work keeps off GPUs it cannot claim."""
        devices = self._pass.places.devices
        devices.follow_held()
        for node in self._pass.nodes.follow_devices():
            self._pass.places.set_node(node)
        claimed, by_tasks = devices.has_gpus, bool(devices.task_class)
        groups, terms = self._pass.places.groups, devices.all_terms
        if groups.set_claimed_gpus(there=claimed, by_tasks=by_tasks, terms=terms):
            self._regroup()

    def allow_groups(
        self, allowed: Mapping[str, NodeGroupLists], departments: Mapping[str, str]
    ) -> None:
        """Set the node groups to which projects restrict their work, external pods included."""
        if self._pass.places.groups.allow(allowed, departments):
            self._regroup()

    def _levels(self, name: str, spec: TopologySpec | None) -> None:
        """Handle a topology that is new or changed; ``None``: it was deleted."""
        levels = () if spec is None else tuple(level_key(one.node_label) for one in spec.levels)
        if self._pass.topologies.get(name) != levels:
            self._pass.topologies[name] = levels
            self._pass.state.apply(TopologySet(name, levels))

    def _regroup(self) -> None:
        for node in self._pass.nodes.regroup():
            self._pass.places.set_node(node)
        confine_waiting(self._pass.state, self._pass.places.groups, self._pass.index.workloads)

    def _touch_pods(self, node: str) -> None:
        for workload in self._pass.index.workloads.values():
            if any(task.pod is not None and task.pod.node == node for task in workload.tasks):
                self._pass.index.touch(workload)

    def _lose_pods(self, node: str, *, ending_only: bool) -> None:
        """Free the allocations of pods on a node that is gone: no event of them follows."""
        for workload in list(self._pass.index.workloads.values()):
            for task in workload:
                one = task.pod
                if one is None or one.node != node or (ending_only and not one.ending):
                    continue
                self._pass.orders.event_reports.append(
                    ReportEvent(one.ref, conditions.NODE_LOST, conditions.node_lost(node))
                )
                self._add_tombstone(one.ref.uid)

    def _add_tombstone(self, uid: str) -> None:
        self._pass.index.tombstones.add(uid)
        self._pass.index.remove_pod(uid)

    # Projects

    def project_changed(self, name: str) -> None:
        """Handle a project that may be known now, so that its pods get a queue."""
        if not self._has_project(name):
            return
        for pod in list(self._pass.index.without_queue.pop(name, {}).values()):
            self._pass.nodes.drop_unmanaged(pod.ref.uid)
            self._arrive(pod)

    def project_deleted(self, name: str, now: float) -> None:
        """A project was deleted: pending pods leave the queue, bound ones are unmanaged."""
        self._pass.now = now
        for workload in [
            one for one in self._pass.index.workloads.values() if one.grouping.project == name
        ]:
            for task in workload:
                pods = (task.pod, self._pass.index.take_successor(task))
                reconcile_pass.release(self._pass, workload, task, Outcome.GONE)
                self._pass.index.close(workload, task)
                for one in pods:
                    if one is not None:
                        self._without_queue(one)
            reconcile_pass.reconcile_workload(self._pass, workload)

    def _has_project(self, name: str) -> bool:
        slot = self._pass.state.queues.slots.get(name)
        there = slot is not None and self._pass.state.queues.is_leaf(slot)
        return there and name not in self._pass.draining

    def _without_queue(self, pod: ExternalPod) -> None:
        self._pass.index.without_queue.setdefault(pod.grouping.project, {})[pod.ref.uid] = pod
        if pod.node:
            self._pass.nodes.put_unmanaged(pod.manifest)
        elif pod.refusal:
            self._pass.report_pending(pod, conditions.CAN_NOT_BE_PLACED, pod.refusal)
        else:
            self._pass.report_pending(
                pod, conditions.NO_PROJECT, conditions.no_project(pod.grouping.project)
            )

    def _found_queue(self, uid: str) -> None:
        for pods in self._pass.index.without_queue.values():
            if pods.pop(uid, None) is not None:
                return

    # Results of orders

    def _binding_failed(self, news: BindingFailed) -> None:
        home = self._pass.index.task_of(news.pod.uid)
        if home is None:
            return
        workload, task = home
        if task.pod is None or task.pod.node or not task.sent:
            return
        log.warning("pod %s/%s was not bound: %s", news.pod.namespace, news.pod.name, news.text)
        reconcile_pass.release(self._pass, workload, task, Outcome.AGAIN)
        self.report_missing(task)
        self._pass.attempts[ERROR] += 1
        task.failures += 1
        if news.final or task.failures >= MOST_FAILURES:
            self._pass.report_pending(task.pod, conditions.REFUSED, news.text)
            self._withdraw(workload)
            self._back_off(workload, REFUSED_SECONDS)
        elif workload.single:
            self._back_off(workload, AGAIN_SECONDS * 2.0**task.failures)
        self._pass.index.touch(workload)

    def _back_off(self, workload: ExternalWorkload, seconds: float) -> None:
        """Keep the workload out of the queue for a while."""
        workload.not_before = self._pass.now + seconds
        workload.changed = True
        self._pass.wake(workload.not_before, workload)

    def _withdraw(self, workload: ExternalWorkload) -> None:
        """Evict the others of a gang of which one cannot start, so that they hold nothing."""
        for task in workload:
            if task.allocation is not None:
                self._pass.evict(
                    workload, task, conditions.INCOMPLETE, conditions.incomplete(workload.name)
                )

    def _eviction_refused(self, news: EvictionRefused) -> None:
        """Mark a victim whose eviction was refused: its devices count as stuck."""
        log.warning("pod %s/%s is not evicted: %s", news.pod.namespace, news.pod.name, news.text)
        home = self._pass.index.task_of(news.pod.uid)
        if home is None:
            return
        workload, task = home
        if task.allocation is not None and task.releasing and task.pod is not None:
            self._pass.state.apply(TaskStuck(workload.uid, task.index))
            told = conditions.does_not_give_way(news.text)
            self._pass.orders.event_reports.append(
                ReportEvent(task.pod.ref, conditions.PROTECTED, told)
            )

    def report_missing(self, task: ExternalTask) -> None:
        """Order a notice to a pending pod that no node can serve it."""
        one = task.pod
        if task.waits and task.allocation is None and one is not None and not one.node:
            self._pass.report_pending(one, conditions.CAN_NOT_BE_PLACED, task.waits)

    def report_missing_pods(self, workload: ExternalWorkload) -> None:
        """Order a notice to the pods of a gang that has had too few pods for a while."""
        now = self._pass.now
        if workload.single or workload.queued or workload.holding:
            workload.incomplete_since = None
        elif workload.incomplete_since is None:
            workload.incomplete_since = now
            self._pass.wake(now + MISSING_SECONDS, workload)
        elif now >= workload.incomplete_since + MISSING_SECONDS and not workload.complete():
            message, later = conditions.pods_missing(workload), False
            for task in workload:
                if task.pod is not None and task.ready and not task.pod.node:
                    told = self._pass.report_pending(task.pod, conditions.PODS_MISSING, message)
                    later |= not told and task.pod.told != message
            if later:
                self._pass.wake(now + REPORT_AGAIN_SECONDS, workload)


def _is_of_another(task: ExternalTask, pod: ExternalPod) -> bool:
    """Whether a pod without a place is of another workload than it was, as by its labels."""
    was = task.pod
    if was is None or was.ref.uid != pod.ref.uid or task.successor is not None:
        return False
    if task.allocation is not None or task.sent or pod.node or pod.refusal:
        return False
    before, now = was.grouping, pod.grouping
    moved = belongs_to(before) != belongs_to(now) or before.is_gang != now.is_gang
    return moved or was.role != pod.role


def _about(news: ExternalEvent) -> tuple[Source, str]:
    """Source and key under which an event that cannot be processed is set aside."""
    match news:
        case ExternalPodSeen(pod):
            return "pod", pod.ref.uid
        case PodDeleted(uid):
            return "pod", uid
        case UnmanagedPodSeen(pod) | TaskPodSeen(pod):
            return "pod", pod.metadata.uid
        case BindingFailed() | EvictionRefused():
            return "pod", news.pod.uid
        case NodeSeen(node):
            return "node", node.metadata.name
        case NodeDeleted(name):
            return "node", name
        case NodeGroupSeen(group):
            return "node", f"group {group.metadata.name}"
        case NodeGroupDeleted(name):
            return "node", f"group {name}"
        case TopologySeen(topology):
            return "node", f"topology {topology.metadata.name}"
        case TopologyDeleted(name):
            return "node", f"topology {name}"
        case RequestSeen() | RequestGone() | RequestRefused():
            return "node", "requests for nodes"
        case _:
            return "message", "Ready"
