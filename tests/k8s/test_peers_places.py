"""What pods ask of their places beside room, on the real API server: neighbours, ports, volumes."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.pods.storage_types import PersistentVolumeClaim
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.errors import NotFound
from carrel_scheduler.kube.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import MARKS
from k8s.scheduling import Site, running, site

pytestmark = MARKS

ZONES = ("a", "a", "b")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


@pytest.fixture
async def here(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    async with site(kubeconfig, tmp_path) as made:
        await made.add_nodes(len(ZONES), gpus=8)
        for number, zone in enumerate(ZONES):
            labels = {"metadata": {"labels": {"zone": zone}}}
            await made.client.patch(NODES, f"{made.name}-{number}", labels)
        await made.add_project("a", 24)
        yield made


def term(app: str, key: str) -> list[dict[str, Any]]:
    return [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]


async def add(here: Site, app: str, count: int, **more: Any) -> None:
    for number in range(count):
        body = here.pod(f"{app}-{number}", **more)
        body["metadata"]["labels"] = {"app": app}
        await here.client.create(PODS, body, here.namespace("a"))


def of(here: Site, app: str) -> dict[str, Pod]:
    """The bound pods of an application."""
    bound = here.bound("a").items()
    return {name: pod for name, pod in bound if pod.metadata.labels.get("app") == app}


def zones(here: Site, app: str) -> Counter[str]:
    numbers = (int(pod.spec.node_name.rpartition("-")[2]) for pod in of(here, app).values())
    return Counter(ZONES[number] for number in numbers)


def told(here: Site, app: str) -> list[str]:
    """What waiting pods of an application are told."""
    return [
        condition.message
        for name, pod in here.of("a").items()
        if name.startswith(app) and not pod.spec.node_name
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "False"
    ]


def three_bound(here: Site, app: str) -> bool:
    return len(of(here, app)) == 3


def says(here: Site, app: str, words: str) -> bool:
    return any(words in message for message in told(here, app))


async def test_pods_keep_apart_near_and_spread(here: Site) -> None:
    port = here.template()["containers"][0] | {
        "ports": [{"containerPort": 80, "hostPort": 18080}],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
    near = {"podAffinity": {REQUIRED: term("leader", "zone")}}
    apart = {"podAntiAffinity": {REQUIRED: term("apart", HOST)}}
    async with running(here.scheduler()):
        await add(here, "near", 2, affinity=near)
        await add(here, "apart", 4, affinity=apart)
        await add(here, "port", 4, containers=[port])
        await add(here, "spread", 3, topologySpreadConstraints=[spread])
        for app in ("apart", "port"):
            await here.until(partial(three_bound, here, app), f"three pods of {app}")
            assert len({pod.spec.node_name for pod in of(here, app).values()}) == 3
        await here.until(lambda: len(of(here, "spread")) == 3, "three pods that are spread")
        counts = zones(here, "spread")
        assert abs(counts["a"] - counts["b"]) == 1
        await here.until(lambda: len(told(here, "near")) == 2, "two that wait for their leader")
        for app, words in (("apart", "may not run beside"), ("port", "ports free")):
            await here.until(partial(says, here, app, words), f"a pod of {app} that is told why")
        await add(here, "leader", 1)
        await here.until(lambda: len(of(here, "near")) == 2, "two pods near to their leader")
        await here.until(lambda: of(here, "leader"), "the leader")
        assert zones(here, "near").keys() == zones(here, "leader").keys()
        first = of(here, "apart")
        (fourth,) = {f"apart-{number}" for number in range(4)} - first.keys()
        await here.finish(next(iter(first.values())))
        await here.until(lambda: fourth in of(here, "apart"), "the fourth in its place")
    await here.check_devices()


def claim(name: str, storage: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def storage_class(name: str, provisioner: str, zone: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    if zone:
        values = [{"key": "zone", "values": [zone]}]
        made["allowedTopologies"] = [{"matchLabelExpressions": values}]
    return made


def local_volume(name: str, storage: str, node: str) -> dict[str, Any]:
    on_node = [{"key": HOST, "operator": "In", "values": [node]}]
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage,
            "persistentVolumeReclaimPolicy": "Delete",
            "local": {"path": "/nowhere"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": on_node}]}},
        },
    }


async def test_pods_go_where_their_volumes_are_or_can_be_made(here: Site) -> None:
    client, namespace, name = here.client, here.namespace("a"), here.name
    made, local = f"{name}-made", f"{name}-local"
    node = f"{name}-1"
    await client.create(STORAGE_CLASSES, storage_class(made, "carrel.test/none", "b"))
    await client.create(STORAGE_CLASSES, storage_class(local, "kubernetes.io/no-provisioner"))
    await client.create(PERSISTENT_VOLUMES, local_volume(local, local, node))

    async def get(claim_name: str) -> PersistentVolumeClaim:
        kind = PERSISTENT_VOLUME_CLAIMS
        return await client.get(kind, claim_name, namespace, type=PersistentVolumeClaim)

    def using(claim_name: str) -> list[dict[str, Any]]:
        return [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]

    try:
        async with running(here.scheduler()):
            await add(here, "made", 1, volumes=using("made"))
            missing = "`made` does not exist"
            await here.until(lambda: says(here, "made", missing), "one that waits for its claim")
            await client.create(PERSISTENT_VOLUME_CLAIMS, claim("made", made), namespace)
            await client.create(PERSISTENT_VOLUME_CLAIMS, claim("local", local), namespace)
            await add(here, "local", 1, volumes=using("local"))
            await here.until(lambda: of(here, "made") and of(here, "local"), "two bound pods")
        assert zones(here, "made") == {"b": 1}
        selected = (await get("made")).metadata.annotations
        assert selected["volume.kubernetes.io/selected-node"] == f"{name}-2"
        assert of(here, "local")["local-0"].spec.node_name == node
        volume = await client.get(PERSISTENT_VOLUMES, local)
        assert volume["spec"]["claimRef"]["uid"] == (await get("local")).metadata.uid
    finally:
        for kind, one in (
            (STORAGE_CLASSES, made),
            (STORAGE_CLASSES, local),
            (PERSISTENT_VOLUMES, local),
        ):
            with suppress(NotFound):
                await client.delete(kind, one)
