"""A cluster in memory: pods that are bound, evicted and made again as the orders say, by chance.

The loop's part is the real one: core, reconciler, plans; only the API server is simulated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import CapacityReserved, Preemptibility, QueueSet
from carrel_scheduler.core.invariants import state as invariants
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.external import ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    Bind,
    BindingFailed,
    Evict,
    ExternalEvent,
    ExternalPodSeen,
    NodeSeen,
    PodDeleted,
    PodOrders,
    ReportEvent,
)
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import ExternalPod, PodRef
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod
from carrel_schema.names import MIG_MODEL

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 4, *, ready: bool = True, mig_model: str = "") -> Node:
    amounts = {GPU: str(gpus), "cpu": "64", "memory": "256Gi", "pods": "50"}
    told = {
        "metadata": {"name": name, "labels": {MIG_MODEL: mig_model} if mig_model else {}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }
    return msgspec.convert(told, Node)


def pod(name: str, gpus: int = 1, notes: Mapping[str, str] | None = None, **spec: Any) -> Pod:
    """A pod; ``notes`` are its annotations."""
    amounts = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: str(gpus)}}
    amounts["requests"][GPU] = str(gpus)
    meta = {"name": name, "namespace": "carrel-a", "uid": f"uid-{name}"}
    told = {
        "metadata": {**meta, "annotations": dict(notes or {})},
        "spec": {"containers": [{"name": "main", "resources": amounts}], **spec},
    }
    return msgspec.convert(told, Pod)


@dataclass
class Real:
    """A pod as it really is."""

    pod: ExternalPod
    devices: tuple[int, ...] = ()

    @property
    def alive(self) -> bool:
        return bool(self.pod.node) and self.pod.outcome is None


@dataclass
class World:
    """The loop on one side, the cluster on the other."""

    nodes: int = 3
    gpus: int = 4
    mig_model: str = ""
    stale_grace_s: float = 5.0
    now: float = 1000.0
    pods: dict[str, Real] = field(default_factory=dict)
    news: list[ExternalEvent] = field(default_factory=list)
    binds: list[Bind] = field(default_factory=list)
    evictions: list[Evict] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    rows: list[Any] = field(default_factory=list)
    event_reports: list[ReportEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new scheduler that is told what is there; orders that were under way are lost."""
        self.state = State()
        self.reconciler = ExternalPodReconciler(
            ReconcilerAccess(self.state, lambda _: None, lambda _: None),
            stale_grace_s=self.stale_grace_s,
        )
        self.reconciler.current.execute = self._take
        self.binds.clear()
        self.evictions.clear()
        self.news.clear()
        for number in range(self.nodes):
            seen = node(f"n{number}", self.gpus, mig_model=self.mig_model)
            self.news.append(NodeSeen(seen))
        self.news += [ExternalPodSeen(real.pod) for real in self.pods.values()]
        self.news.append(AllReconciled())

    def project(self, name: str, gpus: int) -> None:
        quota = ResourceVector(1000 * gpus, UNLIMITED, UNLIMITED)
        self.state.apply(QueueSet(name, quota, over_quota=True))
        self.reconciler.project_changed(name)

    def _take(self, orders: PodOrders) -> None:
        self.binds += orders.binds
        self.evictions += orders.evictions
        self.rows += orders.rows
        self.event_reports += orders.event_reports
        self.told |= {one.pod.name: one.message for one in orders.pending_reports}

    def turn(self) -> None:
        """Run the loop once over all news."""
        news, self.news = self.news, []
        self.reconciler.handle(news, self.now)
        self.reconciler.reconcile(self.now)
        if not self.reconciler.current.ready:
            return
        plan = decide(self.state, self.now)
        for binding in plan.bindings:
            assert self.reconciler.place(binding)
        for eviction in plan.evictions:
            assert self.reconciler.evict(eviction)
        for nomination in plan.nominations:
            self.state.apply(
                CapacityReserved(nomination.uid, nomination.places, nomination.indices)
            )
            assert self.reconciler.nominate(nomination)
        self.reconciler.reconcile(self.now)
        self.reconciler.act()
        invariants.check(self.state)

    # What happens in the cluster

    def add(self, name: str, grouping: Grouping, gpus: int = 1, role: str = "") -> None:
        self.arrive_as(pod(name, gpus), grouping, role)

    def arrive_as(self, one: Pod, grouping: Grouping, role: str = "") -> None:
        """A pod as its manifest says it."""
        meta = one.metadata
        pod = ExternalPod(PodRef(meta.namespace, meta.name, meta.uid), grouping, one, role)
        self.pods[meta.uid] = Real(pod)
        self.news.append(ExternalPodSeen(pod))

    def evict(self, uid: str) -> None:
        """The scheduler has a pod give way, and it does."""
        home = self.reconciler.current.index.task_of(uid)
        assert home is not None
        self.reconciler.current.evict(*home, "Reclaimed", "others want their own")
        self.reconciler.act()
        while self.evictions:
            self.carry_out()

    def see(self, uid: str, **changes: Any) -> None:
        real = self.pods[uid]
        real.pod = seen_as(real.pod, **changes)
        self.news.append(ExternalPodSeen(real.pod))

    def delete(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self.news.append(PodDeleted(uid))

    def carry_out(self, fails: Callable[[], str] = lambda: "") -> None:
        """Carry out one order; ``fails`` says "", "again" or "final"."""
        if self.binds:
            self._bind(self.binds.pop(0), fails())
        elif self.evictions:
            self._evict(self.evictions.pop(0))

    def _bind(self, order: Bind, failure: str) -> None:
        uid = order.pod.uid
        real = self.pods.get(uid)
        if real is None or failure or real.pod.node or real.pod.ending:
            final = failure != "again"
            self.news.append(BindingFailed(order.pod, "refused", final=final))
            return
        bound = msgspec.structs.replace(
            real.pod.manifest,
            spec=msgspec.structs.replace(real.pod.manifest.spec, node_name=order.node),
        )
        self._check_free(order)
        where = {"node": order.node, "devices": order.devices, "slots": order.slots}
        self.see(uid, manifest=bound, **where)

    def _check_free(self, order: Bind) -> None:
        """Fail if a device of a live pod is given away, or a slot of it."""
        for uid, real in self.pods.items():
            if uid != order.pod.uid and real.alive and real.pod.node == order.node:
                both = set(real.pod.devices or ()) & set(order.devices)
                apart = order.slots and real.pod.slots and not order.slots & real.pod.slots
                assert not both or apart, (order, real)

    def _evict(self, order: Evict) -> None:
        if order.pod.uid in self.pods:
            self.see(order.pod.uid, ending=True)

    def settle(self, turns: int = 50) -> None:
        """Let everything happen until nothing more does."""
        for _ in range(turns):
            self.turn()
            if not (self.binds or self.evictions or self.news):
                return
            while self.binds or self.evictions:
                self.carry_out()

    def bound(self) -> dict[str, str]:
        return {r.pod.ref.name: r.pod.node for r in self.pods.values() if r.pod.node}


def seen_as(known: ExternalPod, **changes: Any) -> ExternalPod:
    return replace(known, **changes)


def grouping(uid: str, project: str = "a", **more: Any) -> Grouping:
    more.setdefault("preemptible", Preemptibility.YES)
    return Grouping(uid=uid, name=uid, project=project, **more)
