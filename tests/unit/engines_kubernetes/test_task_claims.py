"""Volume claims of tasks: whose they are, and on which node they are needed."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from carrel_scheduler.engines.contract import EngineError, NotOnThisNode, TaskId, TaskSpec
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import SELECTED_NODE
from carrel_scheduler.engines.kubernetes.pods.storage_types import (
    ClaimSpec,
    ClaimStatus,
    PersistentVolumeClaim,
)
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta
from carrel_scheduler.engines.kubernetes.tasks.volumes import OWNER, Claims
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict


class Cluster:
    """Claims by name; ``rival``: what another one writes just before our first patch."""

    def __init__(self, *claims: PersistentVolumeClaim, rival: str = "") -> None:
        self.claims = {claim.metadata.name: claim for claim in claims}
        self.patched, self.rival = list[tuple[str, str]](), rival

    async def get(
        self, _resource: Any, name: str, _namespace: str, _type: Any
    ) -> PersistentVolumeClaim:
        await asyncio.sleep(0)
        return self.claims[name]

    async def patch(self, _resource: Any, name: str, body: Any, _namespace: str) -> None:
        await asyncio.sleep(0)
        if self.rival:
            self._select(name, self.rival)
            self.rival = ""
        if body["metadata"]["resourceVersion"] != self.claims[name].metadata.resource_version:
            raise Conflict(409, "Conflict", "the object has been modified")
        node = body["metadata"]["annotations"][SELECTED_NODE]
        self.patched.append((name, node))
        self._select(name, node)

    def _select(self, name: str, node: str) -> None:
        old = self.claims[name].metadata
        version = str(int(old.resource_version) + 1)
        meta = ObjectMeta(name=name, annotations={SELECTED_NODE: node}, resource_version=version)
        self.claims[name] = msgspec.structs.replace(self.claims[name], metadata=meta)


class TaskVolumeHarness:
    """Starts of tasks with claims; whoever is in ``gone`` has ended."""

    def __init__(self, cluster: Cluster) -> None:
        self.gone: set[str] = set()
        client = cast("KubeClient", cluster)
        self.claims = Claims(client, lambda task: task.workload_uid not in self.gone)

    async def start(self, uid: str, node: str, *names: str, user: str = "ada") -> None:
        task = TaskSpec(id=TaskId(uid, 0, 0), name=uid, project="vision", user=user, node=node)
        await self.claims.require("carrel-vision", names, task)


def claim(
    name: str, *, owner: str = "", phase: str = "Bound", mode: str = "ReadWriteOnce"
) -> PersistentVolumeClaim:
    annotations = {OWNER: owner} if owner else {}
    meta = ObjectMeta(name=name, annotations=annotations, resource_version="1")
    return PersistentVolumeClaim(meta, ClaimSpec(access_modes=(mode,)), ClaimStatus(phase))


async def test_a_home_is_shown_to_its_owner_only() -> None:
    harness = TaskVolumeHarness(Cluster(claim("home", owner="ada"), claim("project")))
    await harness.start("u1", "node-1", "home", "project")
    for _ in range(2):  # also once it is known
        with pytest.raises(EngineError, match="'home' holds the files of ada; a claim of bea's"):
            await harness.start("u2", "node-1", "project", "home", user="bea")


async def test_a_stranger_does_not_say_where_a_home_is_made() -> None:
    cluster = Cluster(claim("home", owner="ada", phase="Pending"))
    with pytest.raises(EngineError, match="holds the files of ada"):
        await TaskVolumeHarness(cluster).start("u1", "node-1", "home", user="bea")
    assert not cluster.patched


async def test_a_claim_without_a_volume_is_told_its_node() -> None:
    cluster = Cluster(claim("data", phase="Pending"))
    await TaskVolumeHarness(cluster).start("u1", "node-1", "data")
    assert cluster.patched == [("data", "node-1")]


async def test_of_two_that_start_together_one_says_where_the_volume_is_made() -> None:
    cluster = Cluster(claim("data", phase="Pending"))
    harness = TaskVolumeHarness(cluster)
    one, two = await asyncio.gather(
        harness.start("u1", "node-1", "data"),
        harness.start("u2", "node-2", "data"),
        return_exceptions=True,
    )
    assert cluster.patched == [("data", "node-1")]
    assert one is None
    assert isinstance(two, NotOnThisNode)
    assert str(two) == "the volume of claim 'data' is made on node node-1"


async def test_what_another_scheduler_said_meanwhile_counts() -> None:
    cluster = Cluster(claim("data", phase="Pending"), rival="node-2")
    with pytest.raises(NotOnThisNode, match="made on node node-2"):
        await TaskVolumeHarness(cluster).start("u1", "node-1", "data")
    assert not cluster.patched


async def test_a_volume_of_one_node_is_used_on_one_node_at_a_time() -> None:
    harness = TaskVolumeHarness(Cluster(claim("data")))
    await harness.start("u1", "node-1", "data")
    await harness.start("u2", "node-1", "data")
    with pytest.raises(NotOnThisNode, match="'data' is in use on node node-1"):
        await harness.start("u3", "node-2", "data")
    harness.gone |= {"u1", "u2"}
    await harness.start("u3", "node-2", "data")


@pytest.mark.parametrize("phase", ["Pending", "Bound"])
async def test_a_volume_of_many_nodes_binds_nobody(phase: str) -> None:
    harness = TaskVolumeHarness(Cluster(claim("data", phase=phase, mode="ReadWriteMany")))
    await harness.start("u1", "node-1", "data")
    await harness.start("u2", "node-2", "data")
