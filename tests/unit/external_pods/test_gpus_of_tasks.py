"""Work of Carrel's own on nodes whose GPUs a driver offers: where it goes, how it is counted."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Preemptibility, QueueSet, TaskPlaced, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import ResourceVector
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.external import ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    NodeSeen,
    TaskPodSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.extended import MARK
from carrel_scheduler.engines.kubernetes.pods.devices.types import ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.names import TASK
from unit.devices.making_devices import DRIVER, claim, device_class, device_slice, gpus
from unit.external_pods.world import GPU, node, pod

AMD = "gpu.amd.com"
CLAIMED, PLUGGED, OTHERS = "claimed", "plugged", "others"


def cluster(task_class: str = DRIVER) -> tuple[State, ExternalPodReconciler]:
    """A node with two GPUs of the class, one with a device plugin, one of another driver."""
    state = State()
    devices = DeviceClaims(task_class=task_class)
    reconciler = ExternalPodReconciler(
        ReconcilerAccess(state, lambda _: None, lambda _: None),
        places=PlacementConstraints(devices=devices),
    )
    state.apply(QueueSet("a", ResourceVector(64_000, 64_000, 512 * 1024)))
    devices.set_class(device_class())
    devices.inventory.set_slice(gpus(CLAIMED, 2))
    radeon = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    devices.inventory.set_slice(device_slice(OTHERS, radeon, driver=AMD))
    offered = ((CLAIMED, 0), (PLUGGED, 1), (OTHERS, 0))
    reconciler.handle(
        [*(NodeSeen(node(name, count)) for name, count in offered), AllReconciled()], 1.0
    )
    reconciler.reconcile(1.0)
    return state, reconciler


def own(uid: str, request: Request | None = None, gang: Group | None = None) -> WorkloadQueued:
    asked = request or Request(gpus=1)
    return WorkloadQueued(uid, uid, "a", "ada", 50, Preemptibility.YES, asked, gang=gang)


def placed(state: State, reconciler: ExternalPodReconciler, *events: WorkloadQueued) -> list[str]:
    """The nodes of what is placed, with the places taken."""
    for event in events:
        state.apply(reconciler.constrained(event))
    plan = decide(state, 2.0)
    for one in plan.bindings:
        state.apply(TaskPlaced(one.uid, one.index, one.node, one.devices, 2.0))
    return sorted(one.node for one in plan.bindings)


def many(count: int, request: Request | None = None) -> list[WorkloadQueued]:
    return [own(f"w{number}", request) for number in range(count)]


def test_whole_gpus_come_from_claims_of_the_class_and_from_device_plugins() -> None:
    assert placed(*cluster(), *many(9)) == [CLAIMED, CLAIMED, PLUGGED]
    members = Group(requests=(Request(gpus=1),) * 3, min_tasks=3)
    assert placed(*cluster(), own("gang", gang=members)) == [CLAIMED, CLAIMED, PLUGGED]


@pytest.mark.parametrize("task_class", ["", "of.nobody"])
def test_without_such_a_class_claims_are_for_pods_of_others(task_class: str) -> None:
    assert placed(*cluster(task_class), *many(9)) == [PLUGGED]


def test_shares_of_gpus_are_not_given_by_claims() -> None:
    half = Request(share_milli=500, devices=1)
    assert placed(*cluster(), *many(9, half)) == [PLUGGED, PLUGGED]


def test_a_class_that_comes_later_opens_its_nodes() -> None:
    state, reconciler = cluster("late")
    assert placed(state, reconciler, *many(3)) == [PLUGGED]
    reconciler.current.places.devices.set_class(device_class("late"))
    reconciler.reconcile(1.0)
    assert placed(state, reconciler) == [CLAIMED, CLAIMED]


def task_pod(uid: str, count: int, **spec: Any) -> Pod:
    made = pod(uid, count, **spec)
    meta = msgspec.structs.replace(made.metadata, labels={TASK: f"{uid}-0-0"})
    return msgspec.structs.replace(made, metadata=meta)


def allocated(reconciler: ExternalPodReconciler, asking: Pod, count: int) -> ResourceClaim:
    """The claim of a task's pod, as it is written."""
    [order] = reconciler.current.places.devices.decide(asking, CLAIMED, count)
    assert order.special is not None
    names = tuple(one["device"] for one in order.allocation["devices"]["results"])
    made = claim(order.claim, given=names, node=CLAIMED, users=(asking.metadata.uid,))
    notes = {MARK: "true"}
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, annotations=notes)
    )


def broken(state: State) -> int:
    return len(state.nodes.fact(state.nodes.slots[CLAIMED]).broken_devices)


def test_gpus_of_a_tasks_claim_count_once_and_of_nobodys_until_they_are_free() -> None:
    state, reconciler = cluster()
    devices = reconciler.current.places.devices
    state.apply(reconciler.constrained(own("w", Request(gpus=2))))
    [one] = decide(state, 2.0).bindings
    assert one.node == CLAIMED
    state.apply(TaskPlaced("w", 0, CLAIMED, one.devices, 2.0))
    asking = task_pod("w", 2)
    written = allocated(reconciler, asking, 2)
    devices.set_claim(written)  # seen before the pod
    reconciler.reconcile(2.0)
    bound = task_pod("w", 2, nodeName=CLAIMED)
    reconciler.handle([TaskPodSeen(asking), TaskPodSeen(bound)], 2.0)
    reconciler.reconcile(2.0)
    assert broken(state) == 0
    assert placed(state, reconciler, *many(3)) == [PLUGGED]
    assert devices.decide(task_pod("other", 1), CLAIMED, 1) == ()


def test_claims_of_tasks_that_the_core_does_not_know_keep_their_gpus() -> None:
    state, reconciler = cluster()
    asking = task_pod("gone", 1)
    reconciler.current.places.devices.set_claim(allocated(reconciler, asking, 1))
    reconciler.handle([TaskPodSeen(asking)], 2.0)
    reconciler.reconcile(2.0)
    assert broken(state) == 1
    assert placed(state, reconciler, *many(9)) == [CLAIMED, PLUGGED]


def test_a_claim_takes_devices_of_the_class_only() -> None:
    _, reconciler = cluster()
    devices = reconciler.current.places.devices
    [order] = devices.decide(task_pod("w", 2), CLAIMED, 2)
    requests = order.special.claim.spec.devices.requests if order.special else ()
    assert [one.exactly.device_class_name for one in requests if one.exactly] == [DRIVER]
    assert devices.decide(task_pod("v", 1), OTHERS, 1) == ()
    assert not devices.serves_tasks(OTHERS)
    assert not devices.serves_tasks(PLUGGED)


def test_nodes_are_labelled_by_what_their_driver_says_of_gpus() -> None:
    _, reconciler = cluster()
    labels = reconciler.current.nodes.described(CLAIMED).metadata.labels
    assert (labels["nvidia.com/gpu.product"], labels["nvidia.com/gpu.memory"]) == (
        "NVIDIA-A100",
        str(80 * 1024),
    )
    assert GPU not in reconciler.current.nodes.described(OTHERS).metadata.labels
