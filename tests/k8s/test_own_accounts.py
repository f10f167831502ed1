"""What parts do themselves passes the roles and policies of the installation."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskSpec
from carrel_scheduler.engines.kubernetes import notifications
from carrel_scheduler.engines.kubernetes.binding import BindTarget, bind
from carrel_scheduler.engines.kubernetes.eviction import evict
from carrel_scheduler.engines.kubernetes.notifications import PodNotice
from carrel_scheduler.engines.kubernetes.pods import labels
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.tasks.engine import KubernetesEngine
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.resources import PODS
from carrel_scheduler.workloads.namespaces.controller import Namespaces
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_schema.objects import Meta, Project, ProjectSpec
from k8s import access
from k8s.attacks import cluster, epoch, pod
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import MARKS, client, installed, kubectl, make_namespace, ours
from k8s.stores import KubernetesStores, stores

__all__ = ["client", "cluster", "installed", "kubectl", "ours", "stores"]

pytestmark = MARKS
NODE: Final = "n-own"
SPACE: Final = "/api/v1/namespaces"


@pytest.fixture
async def scheduler(
    cluster: None, installed: ControlPlane, tmp_path: Path
) -> AsyncIterator[KubeClient]:
    """Our client with the scheduler's own token."""
    kubeconfig = access.kubeconfig(installed, "carrel-scheduler", tmp_path / "scheduler.json")
    made = KubeClient(from_kubeconfig(kubeconfig))
    access.make(installed, "/api/v1/nodes", {"metadata": {"name": NODE}})
    for name in ("vision", "speech"):
        where = f"{SPACE}/carrel-{name}/serviceaccounts"
        access.make(installed, where, {"metadata": {"name": "default"}})
    yield made
    await made.close()


async def test_namespaces_are_made_adopted_and_retired(
    scheduler: KubeClient, installed: ControlPlane, stores: KubernetesStores
) -> None:
    store = await stores.open()
    controller = Namespaces(
        store,
        scheduler,
        system="carrel-system",
        checkpoints=Checkpoints(size="1Gi"),
        chance=random.random,
    )
    make_namespace(installed, "carrel-given", **{"pod-security.kubernetes.io/warn": "baseline"})
    notes = {"metadata": {"annotations": {"carrel.dev/adopt": "given"}}}
    installed.ask("PATCH", f"{SPACE}/carrel-given", notes)
    for name in ("by-itself", "given"):
        project = await store.create(Project(meta=Meta(name=name), spec=ProjectSpec()))
        await controller.ensure(project)
        await controller.ensure(project)
        labels = installed.get(f"{SPACE}/carrel-{name}")["metadata"]["labels"]
        assert labels["carrel.dev/project"] == name
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        await controller.retire(name)
    assert installed.get(f"{SPACE}/carrel-given")["status"]["phase"] == "Active"
    there = {
        one["metadata"]["name"]: one["status"]["phase"] for one in installed.get(SPACE)["items"]
    }
    assert there.get("carrel-by-itself") in (None, "Terminating")


async def test_a_task_is_started_seen_and_removed(
    scheduler: KubeClient, installed: ControlPlane
) -> None:
    turn = int(epoch(installed))
    engine = KubernetesEngine(
        scheduler, PodSettings(image="none", storage_claim=""), epoch=lambda: turn
    )
    task = TaskSpec(
        id=TaskId("own", 0, 0),
        name="train",
        project="vision",
        user="ada",
        node=NODE,
        command=("true",),
        files={"a": "b"},
        secret_environment={"TOKEN": "s3cret"},
        hostname="w-0",
        subdomain="gang-own",
        memory_mib=64,
        cpu_milli=100,
    )
    await engine.start(task)
    where = f"{SPACE}/carrel-vision"
    name = f"{task.id}"
    assert installed.get(f"{where}/pods/{name}")["spec"]["nodeName"] == NODE
    assert installed.get(f"{where}/services/gang-own")["spec"]["clusterIP"] == "None"
    assert installed.get(f"{where}/secrets/{name}")["immutable"]
    ended = {"status": {"phase": "Succeeded"}}
    installed.ask("PATCH", f"{where}/pods/{name}/status", ended)
    async with asyncio.timeout(60):
        while [one.phase for one in await engine.list()] != [TaskPhase.ENDED]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await engine.forget(task.id)
    await engine.remove_workload("own")
    left = installed.get(f"{where}/pods?labelSelector=carrel.dev/workload-uid%3Down")["items"]
    assert not [one for one in left if not one["metadata"].get("deletionTimestamp")]
    await engine.close()


async def test_pods_of_others_are_bound_told_and_evicted(
    scheduler: KubeClient, installed: ControlPlane
) -> None:
    where = "carrel-speech"
    made = pod(where, name="guest")
    access.make(installed, f"{SPACE}/{where}/pods", made)
    found = await scheduler.get(PODS, "guest", where, type=Pod)
    notice = PodNotice(where, "guest", found.metadata.uid, "OverLimit", "It waits.")
    await notifications.report_pending(scheduler, notice, now=time.time(), instance="one")
    now = await scheduler.get(PODS, "guest", where, type=Pod)
    whom = labels.counted_annotation(Grouping("u", "u", "speech", "grace"))
    uid = now.metadata.uid
    target = BindTarget(where, "guest", uid, NODE, (0,), now, whom)
    await bind(scheduler, target, int(epoch(installed)))
    notes: Any = (await scheduler.get(PODS, "guest", where, type=Pod)).metadata.annotations
    assert labels.read_counted(notes) == labels.CountedGrouping("speech", "grace")
    victim = PodNotice(where, "guest", uid, "Reclaimed", "others want their own")
    await evict(scheduler, victim, 1.0, now=time.time)
    left = await scheduler.get(PODS, "guest", where, type=Pod)
    assert left.metadata.deletion_timestamp is not None
