"""External pods in the reconciler: observed as events, queued in the core, placed by its plans.

The API server is their record; the ledger has only rows of their past. A pass takes events in
(``handlers``), reconciles each workload they concern once (``reconcile_pass``), decides together
with the other workloads, and leaves orders that are carried out after it. A place is allocated in
the core the moment it is decided on; what the cluster then shows confirms it or takes it back.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from carrel_scheduler.core.events import Outcome, TaskPlaced, WorkloadQueued
from carrel_scheduler.core.plan import Binding, Eviction, Nomination
from carrel_scheduler.core.reasons import Reason, ReasonClass
from carrel_scheduler.core.requests import HOST
from carrel_scheduler.engines.core_state import purge
from carrel_scheduler.engines.external import (
    Disruption,
    NodeHealth,
    NodeRequestNote,
    PodCounts,
    ReconcilerAccess,
)
from carrel_scheduler.engines.kubernetes.external_pods import conditions, reconcile_pass
from carrel_scheduler.engines.kubernetes.external_pods.handlers import PodEventHandlers
from carrel_scheduler.engines.kubernetes.external_pods.messages import Nominate, PodOrders
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import (
    Allocation,
    ExternalWorkload,
)
from carrel_scheduler.engines.kubernetes.external_pods.reconcile_pass import (
    STALE_SECONDS,
    ReconcilePass,
)
from carrel_scheduler.engines.kubernetes.external_pods.usage import holder_of, pod_counts
from carrel_scheduler.engines.kubernetes.external_pods.workload_constraints import Claims, confined
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.provisioning.messages import RequestOrder
from carrel_scheduler.engines.kubernetes.provisioning.planning import NodeRequests
from carrel_scheduler.engines.kubernetes.provisioning.types import ProvisioningSettings
from carrel_schema.answers import DeviceHolder
from carrel_schema.objects import NodeGroupLists, Workload

HELD_SECONDS: Final = 5.0
"""Seconds for which an allocation is kept for a pod that its controller has not recreated yet."""


USUAL_LEVELS: Final[Sequence[str]] = (
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
"""Labels of nodes that clouds set, which are levels without an object that says so."""


CHECK_SECONDS: Final = 1.0
NO_PROVISIONING: Final = ProvisioningSettings()


def _ignored(_order: RequestOrder) -> None:
    """Ignore an order of a request for nodes: none are made."""


class OverQuotaWatch:
    """Keeps ``ExternalWorkload.borrowed`` right, and writes rows where it changes.

    What others do may move running work over or under its quota, so all that run are checked, at
    most once a second.
    """

    def __init__(self) -> None:
        self._seen = -1
        self._next = 0.0

    def due_at(self, current: ReconcilePass) -> float | None:
        """The next time to check; ``None`` while nothing changes."""
        return None if self._seen == current.state.queues.changes else self._next

    def clock_set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        self._next -= seconds

    def update(self, current: ReconcilePass) -> None:
        """Check all running workloads, if it is due."""
        changes = current.state.queues.changes
        if self._seen == changes or current.now < self._next:
            return
        self._seen, self._next = changes, current.now + CHECK_SECONDS
        for workload in current.index.workloads.values():
            borrowed = workload.holding and current.state.is_borrowed(workload.uid)
            if borrowed == workload.borrowed:
                continue
            workload.borrowed = borrowed
            for task in workload.tasks:
                if task.allocation is not None:
                    current.row(workload, task, "running")


class ExternalPodReconciler:
    """See ``engines.external.ExternalPods``.

    Args:
        access: to the reconciler.
        stale_grace_s: so long a gang may run with too few of its pods.
        places: what decides where pods may run beside the core.
        storage_claim: claim of every project that all its tasks use but workspaces; empty: none.
        provisioning: how nodes are asked for.
    """

    def __init__(
        self,
        access: ReconcilerAccess,
        *,
        stale_grace_s: float = STALE_SECONDS,
        places: PlacementConstraints | None = None,
        storage_claim: str = "",
        provisioning: ProvisioningSettings = NO_PROVISIONING,
    ) -> None:
        self.current = ReconcilePass(
            access, stale_grace_s, places or PlacementConstraints(), storage_claim
        )
        self._handlers = PodEventHandlers(self.current)
        self.provisioning = provisioning
        self.send_request: Callable[[RequestOrder], None] = _ignored
        if provisioning.class_name:
            self.current.node_requests = NodeRequests(
                provisioning, access.state, self.current.places.groups, self._pods_of
            )
        self._over_quota = OverQuotaWatch()

    @property
    def epoch(self) -> int:
        """The epoch of this scheduler."""
        return self.current.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.current.epoch = epoch

    def handle(self, events: Iterable[Any], now: float) -> None:
        """Take events in; the core follows in ``reconcile``."""
        self._handlers.handle(events, now)

    def project_changed(self, name: str) -> None:
        """Handle a project that may be known now, so that its pods get a queue."""
        self._handlers.project_changed(name)

    def project_deleted(self, name: str, now: float) -> None:
        """A project was deleted."""
        self._handlers.project_deleted(name, now)

    def constrained(self, event: WorkloadQueued, claims: Claims = ()) -> WorkloadQueued:
        """A workload's request with the nodes that are open to it and that its volumes reach."""
        current = self.current
        return current.volumes.confined(confined(event, current.places.groups), claims)

    def reconcile(self, now: float) -> bool:
        """See the contract; node changes first, then each workload that an event concerns."""
        self.current.now = now
        if not self.current.ready:
            return False
        due = self._due(now)
        self._handlers.follow_devices()
        self._clear_leaving_nodes()
        if self.current.index.touched or self.current.nodes.changed:
            self.current.notify()
        self._settle_nodes()
        for workload in self.current.pending_requests.again(self.current.index.workloads.values()):
            self.current.index.touch(workload)
            for task in workload:
                self._handlers.report_missing(task)
        while self.current.index.touched:
            touched, self.current.index.touched = self.current.index.touched, {}
            for workload in touched.values():
                with self.current.quarantine.guard("pod", workload.uid) as guard:
                    reconcile_pass.reconcile_workload(self.current, workload)
                    self._handlers.report_missing_pods(workload)
                if guard.failed:
                    self._set_aside(workload)
        self._settle_nodes()
        self.current.volumes.update(self.current.state)
        return self._reword_requests() or due

    def _reword_requests(self) -> bool:
        """Have the reasons written anew of work for which something changed about nodes."""
        requests = self.current.node_requests
        changed = [] if requests is None else requests.take_changed()
        for uid in changed:
            self.current.explain_again(uid)
        return bool(changed)

    def _set_aside(self, workload: ExternalWorkload) -> None:
        """Set a workload aside: its pods are not queued, bound ones count as unmanaged."""
        purge(self.current.state, workload.uid)
        workload.queued = False
        for task in tuple(workload):
            task.allocation, task.releasing = None, False
            self.current.index.close(workload, task)
            if task.pod is not None and task.pod.node:
                self.current.nodes.put_unmanaged(task.pod.manifest)

    def _settle_nodes(self) -> None:
        if self.current.nodes.changed:
            for facts in self.current.nodes.settle(self.current.state, self.current.quarantine):
                self.current.node_changed(facts)

    @property
    def next_due(self) -> float | None:
        """The next time at which something is due without an event."""
        timer = self.current.timers[0][0] if self.current.timers else None
        over_quota = self._over_quota.due_at(self.current) if self.current.ready else None
        requests = self.current.node_requests
        nodes = requests.due_at(self.current.now) if requests and self.current.ready else None
        due = (timer, over_quota, nodes)
        return min((when for when in due if when is not None), default=None)

    def _due(self, now: float) -> bool:
        found = False
        while self.current.timers and self.current.timers[0][0] <= now:
            workload = heapq.heappop(self.current.timers)[2]
            found = True
            if self.current.index.workloads.get(workload.uid) is workload:
                self.current.index.touch(workload)
        return found

    def _clear_leaving_nodes(self) -> None:
        """Remove nodes from the core on which nothing is placed any more."""
        for name in (
            self.current.nodes.leaving(self.current.state) if self.current.nodes.changed else ()
        ):
            for workload in list(self.current.index.workloads.values()):
                for task in workload:
                    if task.allocation is not None and task.allocation.node == name:
                        reconcile_pass.release(self.current, workload, task, Outcome.AGAIN)
                        self.current.index.touch(workload)

    # Results of decisions

    def place(self, binding: Binding) -> bool:
        """Allocate a binding of the plan; returns whether it belongs to an external pod."""
        workload = self.current.index.workloads.get(binding.uid)
        if workload is None:
            return False
        task = workload.at(binding.index)
        self.current.notify()
        now, place = self.current.now, Allocation(binding.node, binding.devices, binding.slots)
        where = (place.node, place.devices, now, place.slots)
        self.current.state.apply(TaskPlaced(workload.uid, binding.index, *where))
        task.allocation, task.since = place, now
        self.current.row(workload, task, "running")
        if task not in workload.tasks:
            reconcile_pass.release(self.current, workload, task, Outcome.GONE)
        elif task.pod is None:
            task.awaits_until = self.current.now + (
                HELD_SECONDS if workload.grouping.controlled else 0.0
            )
            self.current.wake(task.awaits_until, workload)
        elif not self.current.pending_requests.fits(task, binding.node):
            reconcile_pass.release(self.current, workload, task, Outcome.AGAIN)
            self._handlers.report_missing(task)
            self.current.index.touch(workload)
        else:
            reconcile_pass.bind_pod(self.current, workload, task)
        return True

    def evict(self, eviction: Eviction) -> bool:
        """Evict pods; returns whether they are external."""
        workload = self.current.index.workloads.get(eviction.uid)
        if workload is None:
            return False
        tasks = [workload.at(index) for index in eviction.indices] or workload.tasks
        message = conditions.evicted(eviction.reason, workload.grouping.project)
        for task in tuple(tasks):
            self.current.evict(workload, task, *message)
        if workload.grouping.whole and not workload.single:
            self._evict_late_ones(workload, message)
        return True

    def _evict_late_ones(self, gang: ExternalWorkload, message: tuple[str, str]) -> None:
        """Pods that joined a gang after it had started go with it where it goes as a whole."""
        for other in list(self.current.index.workloads.values()):
            if other is not gang and other.grouping.uid == gang.grouping.uid:
                for task in other:
                    self.current.evict(other, task, *message)

    def nominate(self, nomination: Nomination) -> bool:
        """Report the nodes where capacity is being freed; returns whether the pods are external."""
        workload = self.current.index.workloads.get(nomination.uid)
        if workload is None:
            return False
        indices = nomination.indices or range(len(nomination.places))
        for index, place in zip(indices, nomination.places, strict=True):
            one = workload.at(index).pod
            if one is not None and not one.node:
                self.current.orders.nominations.append(Nominate(one.ref, place[0]))
        return True

    def explain(self, uid: str, reason: Reason) -> bool:
        """Report why a workload waits; returns whether an external pod did not know yet."""
        workload = self.current.index.workloads.get(uid)
        if workload is None:
            return False
        if reason.cls is ReasonClass.STARTING:
            return False  # its binding says so
        note = self.nodes_for(uid, reason)
        token, message = workload.why = conditions.waits(reason, workload.grouping.project, note)
        if not workload.single and not workload.holding:
            message = f"{conditions.one_of(workload.grouping.kind, workload.name)} {message}"
        self.current.notify()
        written = False
        for task in workload:
            if task.pod is not None and task.allocation is None and not task.waits:
                written |= self.current.report_pending(task.pod, token, message)
        return written

    def act(self) -> None:
        """Carry out the decisions of a pass."""
        if self.current.ready:
            self._over_quota.update(self.current)
        releases = self.current.places.devices.releases
        self.current.orders.releases += releases.values()
        releases.clear()
        self._ask_for_nodes()
        if self.current.orders:
            orders, self.current.orders = self.current.orders, PodOrders()
            self.current.execute(orders)

    # Nodes that are not there yet

    @property
    def asks_for_nodes(self) -> bool:
        """Whether nodes are asked for where work fits none of those that are there."""
        return self.current.node_requests is not None

    def nodes_for(self, uid: str, reason: Reason) -> NodeRequestNote | None:
        """Take in why work waits; what is said about nodes for it."""
        requests = self.current.node_requests
        return None if requests is None else requests.consider(uid, reason, self.current.now)

    def _ask_for_nodes(self) -> None:
        requests = self.current.node_requests
        if requests is None or not self.current.ready:
            return
        for order in requests.look(self.current.now):
            self.send_request(order)

    def _pods_of(self, uid: str, indices: Sequence[int]) -> tuple[str, list[Pod]] | None:
        """Namespace and pods of a workload; one whose pod is on its way is like the others."""
        workload = self.current.index.workloads.get(uid)
        if workload is None:
            return None
        pods = [workload.at(index).pod for index in indices]
        there = next(task.pod for task in workload if task.pod is not None)
        return there.ref.namespace, [(pod or there).manifest for pod in pods]

    def clock_set_back(self, seconds: float) -> None:
        """Move all timers with a clock that was set back."""
        if self.current.node_requests is not None:
            self.current.node_requests.clock_set_back(seconds)
        self.current.timers = [
            (when - seconds, number, workload) for when, number, workload in self.current.timers
        ]
        self._over_quota.clock_set_back(seconds)
        for workload in self.current.index.workloads.values():
            workload.not_before -= seconds
            for task in workload:
                if task.awaits_until is not None:
                    task.awaits_until -= seconds

    # Views: see the contract

    def counts(self) -> PodCounts | None:
        """Figures, once the loop may current."""
        return (
            pod_counts(self.current.index.workloads.values(), self.current.attempts)
            if self.current.ready
            else None
        )

    def holder(
        self, uid: str, gpu_milli: int, *, releasing: bool, color_of: Callable[[str], int | None]
    ) -> DeviceHolder | None:
        """See the contract."""
        workload = self.current.index.workloads.get(uid)
        if workload is None:
            return None
        color = color_of(workload.grouping.project)
        return holder_of(workload, gpu_milli, releasing=releasing, color=color)

    def node_health(self, name: str) -> NodeHealth:
        """The health of a node."""
        return self.current.nodes.health(name)

    def changed_nodes(self) -> Mapping[str, NodeHealth]:
        """The nodes whose health changed since the last call, and new ones."""
        return self.current.nodes.health_changes()

    def disruptions(self) -> Sequence[Disruption]:
        """Disruptions of workloads' tasks since the last call."""
        return self.current.task_pods.disruptions()

    def is_short_of_gpus(self, name: str) -> bool:
        """Whether a node offers fewer GPUs than are in use there."""
        return self.current.nodes.short_of_gpus(self.current.state, name)

    def node_groups(self) -> frozenset[str]:
        """Names of all node groups."""
        return self.current.places.groups.names()

    def allow_groups(
        self, allowed: Mapping[str, NodeGroupLists], departments: Mapping[str, str]
    ) -> None:
        """Set the node groups to which projects restrict their work."""
        self._handlers.allow_groups(allowed, departments)

    def group_of(self, _node: str, _labels: Mapping[str, str]) -> str:
        """See the contract: empty, a cluster's nodes name their groups by their own objects."""
        return ""

    def take_regrouped(self) -> bool:
        """See the contract: never, nodes follow their groups without it."""
        return False

    def open_node_groups(self, project: str, *, interactive: bool) -> frozenset[str] | None:
        """The node groups that a project's work may use."""
        return self.current.places.groups.open_to(project, interactive=interactive)

    def topology_levels(self) -> Sequence[str]:
        """The levels of all topologies, those of clouds where nodes tell them, and the node."""
        told = {key for node in self.current.nodes.objects() for key in node.metadata.labels}
        levels: list[str] = [key for key in USUAL_LEVELS if key in told]
        levels += [key for keys in self.current.topologies.values() for key in keys if key != HOST]
        return (*dict.fromkeys(levels), "node")

    def claims_of(self, workload: Workload) -> tuple[str, ...]:
        """The volume claims that constrain where a workload may run."""
        return self.current.volumes.claims_of(workload)

    def follow_volumes(self, uid: str, claims: tuple[str, ...]) -> None:
        """Update the constraints of a queued workload when its volumes change."""
        self.current.volumes.follow(uid, claims)
