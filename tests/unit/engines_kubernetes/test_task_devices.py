"""GPUs that a task's pod is given by a claim: before it is bound, and taken back if it is not."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import EngineError, TaskId, TaskSpec
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.types import RESOURCE_CLAIMS, ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.types import Meta, Pod
from carrel_scheduler.engines.kubernetes.tasks import device_claims
from carrel_scheduler.engines.kubernetes.tasks.device_claims import TaskDevices
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.resources import PODS
from carrel_schema.names import TASK
from unit.devices.making_devices import DRIVER, claim, device_class, gpus
from unit.external_pods.world import pod


def task(uid: str, gpus_: int) -> TaskSpec:
    return TaskSpec(
        id=TaskId(uid, 0, 0),
        name=uid,
        project="a",
        user="ada",
        node="n0",
        devices=tuple(range(gpus_)),
    )


class Cluster:
    """Pods of tasks, and the claims that are made for them."""

    def __init__(self) -> None:
        self.claims = DeviceClaims(task_class=DRIVER)
        self.claims.set_class(device_class())
        self.claims.inventory.set_slice(gpus("n0", 2))
        self.made: dict[str, ResourceClaim] = {}
        self.deleted: list[str] = []
        self.told: list[str] = []

    async def get(self, resource: Any, name: str, *_: Any, **__: Any) -> Any:
        if resource is RESOURCE_CLAIMS:
            return self.made[name]
        made = pod(name, int(name[-1]))
        meta = msgspec.structs.replace(made.metadata, labels={TASK: f"{name}-0-0"})
        return msgspec.structs.replace(made, metadata=meta)

    async def create(self, _: Any, body: Any, *__: Any, **___: Any) -> ResourceClaim:
        meta = {**body["metadata"], "uid": f"uid-{body['metadata']['name']}"}
        return self.put({**body, "metadata": meta})

    def put(self, body: Any) -> ResourceClaim:
        made = msgspec.convert(body, ResourceClaim)
        self.made[made.metadata.name] = made
        return made

    async def patch(self, resource: Any, name: str, body: Any, *_: Any, **__: Any) -> Any:
        if resource is PODS:
            self.told.append(body["status"]["extendedResourceClaimStatus"]["resourceClaimName"])
            return None
        before = msgspec.to_builtins(self.made[name])
        changed = {**before["metadata"], **body["metadata"]}
        status = {**before.get("status", {}), **body.get("status", {})}
        made = self.put({**before, "metadata": changed, "status": status})
        self.claims.set_claim(made)
        return made

    async def delete(self, _: Any, name: str, *__: Any, **___: Any) -> None:
        self.deleted.append(name)
        self.claims.drop_claim(self.made.pop(name))

    def given(self) -> list[str]:
        return sorted(
            one.device
            for made in self.made.values()
            if made.status.allocation is not None
            for one in made.status.allocation.devices.results
        )


async def start(cluster: Cluster, name: str, bound: list[str], trouble: str = "") -> None:
    devices = TaskDevices(cast("KubeClient", cluster), cluster.claims)
    meta = Meta(name=name, namespace="carrel-a", uid=f"uid-{name}")
    async with devices.given(task(name, int(name[-1])), meta):
        if trouble:
            raise EngineError(trouble)
        bound.append(name)


async def test_a_pod_is_given_devices_before_it_is_bound_and_others_none_of_them() -> None:
    cluster, bound = Cluster(), list[str]()
    await asyncio.gather(start(cluster, "a1", bound), start(cluster, "b1", bound))
    assert (sorted(bound), cluster.given()) == (["a1", "b1"], ["gpu-0", "gpu-1"])
    assert sorted(cluster.told) == sorted(cluster.made)


async def test_a_start_waits_until_devices_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, bound = Cluster(), list[str]()
    old = claim("old", given=("gpu-0",), users=("uid-old",))
    cluster.claims.set_claim(old)
    looks: list[float] = []

    async def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            cluster.claims.drop_claim(old)

    monkeypatch.setattr(asyncio, "sleep", pause)
    await start(cluster, "a2", bound)
    assert (len(looks), cluster.given()) == (3, ["gpu-0", "gpu-1"])


async def test_a_start_that_finds_none_in_time_is_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_claims, "PAUSES", Pauses(0.0, 0.0, 2))
    cluster, bound = Cluster(), list[str]()
    cluster.claims.set_claim(claim("old", given=("gpu-0",), users=("uid-old",)))
    with pytest.raises(EngineError, match="are not free yet"):
        await start(cluster, "a2", bound)
    assert (bound, cluster.made) == ([], {})


async def test_devices_of_a_pod_that_is_not_bound_are_taken_back_for_its_next_try() -> None:
    cluster, bound = Cluster(), list[str]()
    with pytest.raises(EngineError, match="refused"):
        await start(cluster, "a2", bound, "refused")
    assert cluster.given() == ["gpu-0", "gpu-1"]  # written, and reserved for that very pod
    [left] = cluster.made
    await start(cluster, "a2", bound)
    assert (cluster.deleted, bound) == ([left], ["a2"])


async def test_nothing_is_claimed_where_a_device_plugin_offers_gpus() -> None:
    cluster, bound = Cluster(), list[str]()
    cluster.claims.task_class = ""
    await start(cluster, "a1", bound)
    assert (bound, cluster.made, cluster.told) == (["a1"], {}, [])


def test_a_pod_of_others_with_a_tasks_name_is_no_task() -> None:
    claims = Cluster().claims
    stranger: Pod = pod("x1", 1)
    assert not claims.asks(stranger)
