"""Groups of nodes are for their projects and kinds of work, whoever submits it."""

from dataclasses import replace

import msgspec

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Preemptibility, QueueSet, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import ResourceVector
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.external import ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    NodeGroupDeleted,
    NodeGroupSeen,
    NodeSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup

AMOUNTS = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "256Gi", "pods": "110"}


def node(name: str, model: str) -> NodeSeen:
    said = {
        "metadata": {"name": name, "labels": {"model": model}},
        "status": {"allocatable": AMOUNTS},
    }
    return NodeSeen(msgspec.convert(said, Node))


def group(name: str, model: str, **spec: object) -> NodeGroupSeen:
    said = {"metadata": {"name": name}, "spec": {"matchLabels": {"model": model}, **spec}}
    return NodeGroupSeen(msgspec.convert(said, NodeGroup))


def cluster() -> tuple[State, ExternalPodReconciler]:
    state = State()
    reconciler = ExternalPodReconciler(ReconcilerAccess(state, lambda _: None, lambda _: None))
    for name in ("a", "b"):
        state.apply(QueueSet(name, ResourceVector(16_000, 64_000, 256 * 1024)))
    reconciler.handle([node("fast", "h100"), node("slow", "t4"), AllReconciled()], 1.0)
    reconciler.reconcile(1.0)
    return state, reconciler


def own(
    uid: str, project: str, *, interactive: bool = False, gang: Group | None = None
) -> WorkloadQueued:
    return WorkloadQueued(
        uid,
        uid,
        project,
        "ada",
        50,
        Preemptibility.YES,
        Request(gpus=1),
        interactive=interactive,
        gang=gang,
    )


def placed(state: State) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for binding in decide(state, 2.0).bindings:
        found.setdefault(binding.uid, set()).add(binding.node)
    return found


def test_our_own_work_goes_only_where_it_may() -> None:
    state, reconciler = cluster()
    reconciler.handle(
        [group("fast", "h100", role="training"), group("slow", "t4", projects=["a"])], 1.0
    )
    reconciler.reconcile(1.0)
    both = Group(requests=(Request(gpus=8), Request(gpus=8)), min_tasks=1)
    for event in (
        own("a-trains", "a", gang=both),
        own("a-sits", "a", interactive=True),
        own("b-trains", "b"),
        own("b-sits", "b", interactive=True),
    ):
        state.apply(reconciler.constrained(event))
    found = placed(state)
    assert found["a-sits"] == {"slow"}
    assert found["b-trains"] == {"fast"}
    assert "b-sits" not in found


def test_what_waits_follows_the_groups() -> None:
    state, reconciler = cluster()
    event = own("b-waits", "b")
    assert reconciler.constrained(event) is event
    reconciler.handle(
        [group("all", "h100", projects=["a"]), group("too", "t4", projects=["a"])], 1.0
    )
    reconciler.reconcile(1.0)
    state.apply(reconciler.constrained(event))
    assert placed(state) == {}
    reconciler.handle([group("too", "t4", projects=["a", "b"])], 1.0)
    reconciler.reconcile(1.0)
    assert placed(state) == {"b-waits": {"slow"}}
    reconciler.handle(
        [NodeGroupDeleted("all"), NodeGroupDeleted("too"), group("too", "t4", projects=["a"])], 1.0
    )
    reconciler.reconcile(1.0)
    assert placed(state) == {"b-waits": {"fast"}}


def test_nobody_is_confined_where_there_are_no_groups() -> None:
    state, reconciler = cluster()
    reconciler.handle([group("all", "h100", projects=["a"]), NodeGroupDeleted("all")], 1.0)
    reconciler.reconcile(1.0)
    state.apply(reconciler.constrained(own("b", "b")))
    assert placed(state).keys() == {"b"}


def test_where_roles_bind_work_with_gpus_and_work_without_go_to_workers_of_their_own() -> None:
    state = State()
    reconciler = ExternalPodReconciler(ReconcilerAccess(state, lambda _: None, lambda _: None))
    reconciler.current.places.groups.by_role = True
    state.apply(QueueSet("a", ResourceVector(16_000, 64_000, 256 * 1024)))
    roles = {"gpus": "gpu-worker", "cpus": "carrel-cpu-worker", "system": ""}
    for name, role in roles.items():
        labels = {f"node-role.kubernetes.io/{role}": ""} if role else {}
        said = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": AMOUNTS}}
        reconciler.handle([NodeSeen(msgspec.convert(said, Node))], 1.0)
    plain = Request(cpu_milli=100, memory_mib=16)
    requests = {"trains": Request(gpus=1), "plain": plain}
    for uid, request in requests.items():
        event = replace(own(uid, "a"), request=request)
        state.apply(event if uid == "plain" else reconciler.constrained(event))
    pair = Group(requests=(Request(gpus=1),) * 2)
    state.apply(reconciler.constrained(replace(own("pair", "a", gang=pair), tasks=2)))
    reconciler.handle([AllReconciled()], 1.0)  # what was queued before all was known is told, too
    reconciler.reconcile(1.0)
    assert placed(state) == {"trains": {"gpus"}, "pair": {"gpus"}, "plain": {"cpus"}}
