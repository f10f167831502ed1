"""Volumes of one node, on a real API server: of two tasks that start together one says where."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.contract import NotOnThisNode, TaskId, TaskSpec
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import SELECTED_NODE
from carrel_scheduler.engines.kubernetes.pods.storage_types import PersistentVolumeClaim
from carrel_scheduler.engines.kubernetes.tasks.volumes import Claims
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.errors import AlreadyExists
from carrel_scheduler.kube.resources import NAMESPACES, PERSISTENT_VOLUME_CLAIMS
from k8s.cluster.plane import ControlPlane

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
SPACE = "claims-together"
CLAIM: dict[str, Any] = {
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "made-where-it-is-used",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


def task(uid: str, node: str) -> TaskSpec:
    return TaskSpec(id=TaskId(uid, 0, 0), name=uid, project="a", user="ada", node=node)


async def test_two_schedulers_have_a_volume_made_on_one_node(
    plane: ControlPlane, tmp_path: Path
) -> None:
    client = KubeClient(from_kubeconfig(plane.kubeconfig(tmp_path / "admin")))
    try:
        with suppress(AlreadyExists):
            await client.create(NAMESPACES, {"metadata": {"name": SPACE}})
        await client.create(PERSISTENT_VOLUME_CLAIMS, CLAIM, SPACE)
        nodes = [f"n{number}" for number in range(6)]
        answers = await asyncio.gather(
            *(
                Claims(client, lambda _: False).require(SPACE, ["data"], task(f"u-{node}", node))
                for node in nodes
            ),
            return_exceptions=True,
        )
        claim = await client.get(PERSISTENT_VOLUME_CLAIMS, "data", SPACE, PersistentVolumeClaim)
    finally:
        await client.close()
    chosen = claim.metadata.annotations[SELECTED_NODE]
    told = dict(zip(nodes, answers, strict=True))
    assert told.pop(chosen) is None
    assert all(isinstance(answer, NotOnThisNode) for answer in told.values()), told
