"""A scheduler core with the devices of a cluster, whose tasks get theirs by claims.

What the tests of parts of GPUs and of MIG instances have in common: work is queued and placed, its
pods and claims are as the API server would have them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    NodeSet,
    Outcome,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TaskReleased,
    WorkloadQueued,
)
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import ResourceVector
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.external import ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.extended import manifest
from carrel_scheduler.engines.kubernetes.pods.devices.orders import AllocateClaim
from carrel_scheduler.engines.kubernetes.pods.devices.types import ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.names import TASK
from unit.external_pods.world import pod


class TaskCluster:
    """The core with one queue, and the reconciler of pods.

    Args:
        devices: of the cluster, with the classes that serve tasks.
    """

    def __init__(self, devices: DeviceClaims) -> None:
        self.state, self.devices = State(), devices
        self.reconciler = ExternalPodReconciler(
            ReconcilerAccess(self.state, lambda _: None, lambda _: None),
            places=PlacementConstraints(devices=devices),
        )
        self.state.apply(QueueSet("a", ResourceVector(64_000, 64_000, 512 * 1024)))

    def pass_(self) -> None:
        """Reconcile."""
        self.reconciler.reconcile(1.0)

    def queue_and_place(self, uids: tuple[str, ...], asked: Request) -> list[TaskPlaced]:
        """Queue work; what is placed then."""
        for uid in uids:
            event = WorkloadQueued(uid, uid, "a", "ada", 50, Preemptibility.YES, asked)
            self.state.apply(self.reconciler.constrained(event))
        placed = [
            TaskPlaced(one.uid, one.index, one.node, one.devices, 2.0)
            for one in decide(self.state, 2.0).bindings
        ]
        for one in placed:
            self.state.apply(one)
        self.pass_()
        return placed

    def release(self, uid: str) -> None:
        """A task has ended."""
        self.state.apply(TaskReleased(uid, 0, Outcome.SUCCEEDED, 3.0))

    def fact(self, name: str) -> NodeSet:
        """A node as the core knows it."""
        return self.state.nodes.fact(self.state.nodes.slots[name])


def task_pod(uid: str, amounts: Mapping[str, str], **spec: Any) -> Pod:
    """The pod of a task, whose container asks for these amounts."""
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    made = pod(uid, containers=[container], **spec)
    meta = msgspec.structs.replace(made.metadata, labels={TASK: f"{uid}-0-0"})
    return msgspec.structs.replace(made, metadata=meta)


def written(order: AllocateClaim) -> ResourceClaim:
    """A claim as the API server has it once it is allocated."""
    assert order.special is not None
    told = manifest(order.special)
    told["metadata"] |= {"uid": f"uid-{order.claim}", "resourceVersion": "1"}
    user = {"resource": "pods", "name": order.pod, "uid": order.pod_uid}
    told["status"] = {"allocation": order.allocation, "reservedFor": [user]}
    return msgspec.convert(told, ResourceClaim)
