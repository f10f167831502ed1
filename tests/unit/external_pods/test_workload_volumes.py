"""Our own work goes where its volumes can be reached, as things are."""

from dataclasses import replace
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
    PodDeleted,
    TaskPodSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.external_pods.workload_constraints import asked_claims
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import Volumes
from carrel_scheduler.engines.kubernetes.pods.storage_types import (
    PersistentVolume,
    PersistentVolumeClaim,
)
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod
from carrel_schema.objects import Meta, Workload, WorkloadSpec

AMOUNTS = {"cpu": "64", "memory": "256Gi", "pods": "110"}
HOME = "home-ada"


def claim(name: str, *modes: str, volume: str = "") -> PersistentVolumeClaim:
    said = {
        "metadata": {"name": name, "namespace": "carrel-a"},
        "spec": {"accessModes": list(modes), "volumeName": volume},
    }
    return msgspec.convert(said, PersistentVolumeClaim)


def volume(name: str, node: str = "") -> PersistentVolume:
    expressions = [{"key": "host", "operator": "In", "values": [node]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"required": required}} if node else {}
    return msgspec.convert({"metadata": {"name": name}, "spec": affinity}, PersistentVolume)


def workspace(node: str, phase: str = "Running") -> Pod:
    """A workspace that uses its user's home."""
    used = [{"name": "home", "persistentVolumeClaim": {"claimName": HOME}}]
    said: dict[str, Any] = {
        "metadata": {"name": "desk", "namespace": "carrel-a", "uid": "desk"},
        "spec": {"nodeName": node, "volumes": used, "containers": []},
        "status": {"phase": phase},
    }
    return msgspec.convert(said, Pod)


def cluster(*modes: str, storage_claim: str = "") -> tuple[State, ExternalPodReconciler, Volumes]:
    state, volumes = State(), Volumes()
    reconciler = ExternalPodReconciler(
        ReconcilerAccess(state, lambda _: None, lambda _: None),
        places=PlacementConstraints(volumes),
        storage_claim=storage_claim,
    )
    state.apply(QueueSet("a", ResourceVector(0, 64_000, 256 * 1024)))
    for name in ("n1", "n2", "n3"):
        said = {
            "metadata": {"name": name, "labels": {"host": name}},
            "status": {"allocatable": AMOUNTS},
        }
        reconciler.handle([NodeSeen(msgspec.convert(said, Node))], 1.0)
    volumes.set_volume(volume("disk"))
    volumes.set_claim(claim(HOME, *(modes or ("ReadWriteOnce",)), volume="disk"))
    reconciler.handle([AllReconciled()], 1.0)
    reconciler.reconcile(1.0)
    return state, reconciler, volumes


def job(uid: str = "w", gang: Group | None = None) -> WorkloadQueued:
    request = Request(cpu_milli=100)
    return WorkloadQueued(uid, uid, "a", "ada", 50, Preemptibility.YES, request, gang=gang)


def ask(
    state: State,
    reconciler: ExternalPodReconciler,
    *claims: str,
    event: WorkloadQueued | None = None,
) -> None:
    event = event or job()
    state.apply(reconciler.constrained(event, claims))
    reconciler.current.volumes.follow(event.uid, claims)


def nodes(state: State, uid: str = "w") -> set[str] | None:
    found = state.jobs.by_uid[uid].spec.request.where.nodes
    return None if found is None else set(found)


def settle(reconciler: ExternalPodReconciler, *news: Any) -> None:
    reconciler.handle(news, 2.0)
    reconciler.reconcile(2.0)


def test_it_runs_beside_the_workspace_whose_home_it_sees() -> None:
    state, reconciler, _ = cluster()
    settle(reconciler, TaskPodSeen(workspace("n2")))
    ask(state, reconciler, HOME)
    assert {one.node for one in decide(state, 2.0).bindings} == {"n2"}


def test_a_volume_of_many_nodes_binds_nobody() -> None:
    state, reconciler, _ = cluster("ReadWriteOnce", "ReadWriteMany")
    settle(reconciler, TaskPodSeen(workspace("n2")))
    ask(state, reconciler, HOME)
    assert nodes(state) is None


def test_what_waits_follows_the_workspace() -> None:
    state, reconciler, _ = cluster()
    ask(state, reconciler, HOME)
    assert nodes(state) is None
    settle(reconciler, TaskPodSeen(workspace("n3")))
    assert nodes(state) == {"n3"}
    settle(
        reconciler, TaskPodSeen(workspace("n3", phase="Succeeded")), TaskPodSeen(workspace("n1"))
    )
    assert nodes(state) == {"n1"}
    settle(reconciler, PodDeleted("desk"))
    assert nodes(state) is None


def test_what_runs_stays_where_it_is() -> None:
    state, reconciler, _ = cluster()
    ask(state, reconciler, HOME)
    state.apply(TaskPlaced("w", 0, "n1", (), 2.0))
    settle(reconciler, TaskPodSeen(workspace("n3")))
    assert nodes(state) is None


def test_all_of_a_gang_go_there() -> None:
    state, reconciler, _ = cluster()
    settle(reconciler, TaskPodSeen(workspace("n2")))
    pair = Group(requests=(Request(cpu_milli=100),) * 2)
    ask(state, reconciler, HOME, event=replace(job(gang=pair), tasks=2))
    assert [one.node for one in decide(state, 2.0).bindings] == ["n2", "n2"]


def test_a_volume_that_lies_on_a_node_ties_to_it_and_a_missing_claim_to_nothing() -> None:
    state, reconciler, volumes = cluster()
    ask(state, reconciler, "data", HOME)
    assert nodes(state) is None
    volumes.set_volume(volume("local", "n3"))
    volumes.set_claim(claim("data", "ReadWriteOnce", volume="local"))
    settle(reconciler)
    assert nodes(state) == {"n3"}


def test_claims_are_named_once_and_folders_are_none() -> None:
    spec = WorkloadSpec(volumes=[("data/a", "x"), ("data/b", "y"), ("/srv", "z"), ("home", "")])
    assert asked_claims(spec) == ("data", "home")


@pytest.mark.parametrize(
    ("kind", "mode", "claims"),
    [
        ("training", "ReadWriteOnce", ("data", HOME)),
        ("training", "ReadWriteMany", ("data",)),
        ("workspace", "ReadWriteOnce", ("data",)),
    ],
)
def test_the_checkpoints_of_a_project_are_followed_where_one_node_has_them(
    kind: Any, mode: str, claims: tuple[str, ...]
) -> None:
    _, reconciler, _ = cluster(mode, storage_claim=HOME)
    meta = Meta(uid="w", name="w", project="a", created_at=0.0)
    work = Workload(meta=meta, spec=WorkloadSpec(kind=kind, volumes=[("data", "")]))
    assert reconciler.claims_of(work) == claims
