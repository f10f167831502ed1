"""GPUs that a task's pod is given by a claim: before it is bound, and taken back if it is not."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import EngineError, NotOnThisNode, TaskId, TaskSpec
from carrel_scheduler.engines.kubernetes import device_claims as allocating
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.types import RESOURCE_CLAIMS, ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta, Pod
from carrel_scheduler.engines.kubernetes.tasks import device_claims
from carrel_scheduler.engines.kubernetes.tasks.device_claims import TaskDevices
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Unavailable
from carrel_scheduler.kube.resources import PODS
from carrel_schema.names import GPU_MEMORY_MIB, GPU_UUIDS, TASK
from unit.devices.making_devices import (
    DRIVER,
    claim,
    device,
    device_class,
    device_slice,
    gpus,
)
from unit.external_pods.test_instances_of_tasks import divided
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
        self.asks: dict[str, str] = {}

    async def get(self, resource: Any, name: str, *_: Any, **__: Any) -> Any:
        if resource is RESOURCE_CLAIMS:
            return self.made[name]
        container = {"name": "main", "resources": {"requests": self.asks, "limits": self.asks}}
        made = pod(name, containers=[container]) if self.asks else pod(name, int(name[-1]))
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


async def start(
    cluster: Cluster,
    name: str,
    bound: list[str],
    trouble: str = "",
    ended: asyncio.Event | None = None,
) -> None:
    devices = TaskDevices(cast("KubeClient", cluster), cluster.claims)
    meta = ObjectMeta(name=name, namespace="carrel-a", uid=f"uid-{name}")
    async with devices.given(task(name, int(name[-1])), meta, ended or asyncio.Event()):
        if trouble:
            raise EngineError(trouble)
        bound.append(name)


async def test_a_pod_is_given_devices_before_it_is_bound_and_others_none_of_them() -> None:
    cluster, bound = Cluster(), list[str]()
    await asyncio.gather(start(cluster, "a1", bound), start(cluster, "b1", bound))
    assert (sorted(bound), cluster.given()) == (["a1", "b1"], ["gpu-0", "gpu-1"])
    assert sorted(cluster.told) == sorted(cluster.made)


ATTACHED = "example.com/attached"


def attached() -> Cluster:
    """GPUs that have to be attached to the node before a pod is bound there."""
    cluster = Cluster()
    cluster.claims.inventory.set_slice(gpus("n0", 1, bindingConditions=[ATTACHED]))
    return cluster


async def test_a_start_waits_until_its_device_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, bound = attached(), list[str]()
    monkeypatch.setattr(allocating, "PREPARATION_PAUSES", Pauses(0.0, 0.0))
    starting = asyncio.create_task(start(cluster, "a1", bound))
    async with asyncio.timeout(60):
        while cluster.given() != ["gpu-0"]:  # noqa: ASYNC110 - what is asked sets no event
            await asyncio.sleep(0)
        assert bound == []
        [made] = cluster.made.values()
        about = {"driver": DRIVER, "pool": "n0", "device": "gpu-0"}
        conditions = [{"type": ATTACHED, "status": "True"}]
        status = {"devices": [{**about, "conditions": conditions}]}
        await cluster.patch(RESOURCE_CLAIMS, made.metadata.name, {"metadata": {}, "status": status})
        await starting
    assert bound == ["a1"]


async def test_a_start_that_is_to_end_waits_for_no_device() -> None:
    cluster, bound, ended = attached(), list[str](), asyncio.Event()
    ended.set()
    with pytest.raises(EngineError, match="ended before its devices were prepared"):
        await start(cluster, "a1", bound, ended=ended)
    assert bound == []


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


async def free(cluster: Cluster, *pods: str) -> None:
    devices = TaskDevices(cast("KubeClient", cluster), cluster.claims)
    for uid in pods:
        devices.ended(uid)
        devices.ended(uid)
    async with asyncio.timeout(5):
        while cluster.made:  # noqa: ASYNC110 - nobody tells when it is done
            await asyncio.sleep(0)
    await devices.close()


async def test_what_an_ended_pod_had_is_free_at_once() -> None:
    cluster, bound = Cluster(), list[str]()
    await start(cluster, "a2", bound)
    [made] = cluster.made
    await free(cluster, "uid-a2", "uid-of-nobody")
    assert cluster.deleted == [made]
    await start(cluster, "b2", bound)
    assert bound == ["a2", "b2"]


async def test_freeing_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_claims, "FREEING", Pauses(0.0, 0.0, 3))
    cluster, bound = Cluster(), list[str]()
    await start(cluster, "a2", bound)
    delete, tries = cluster.delete, list[str]()

    async def refused(resource: Any, name: str, *_: Any, **__: Any) -> None:
        tries.append(name)
        if len(tries) < 3:
            raise Unavailable(503, "ServiceUnavailable", "not now")
        await delete(resource, name)

    monkeypatch.setattr(cluster, "delete", refused)
    await free(cluster, "uid-a2")
    assert len(tries) == 3


def sharing() -> Cluster:
    """The node has one GPU of 80 GiB, which claims share."""
    cluster = Cluster()
    shared = device("gpu-0", allowMultipleAllocations=True)
    shared["attributes"]["uuid"] = {"string": "GPU-0"}
    cluster.claims.inventory.set_slice(device_slice("n0", shared))
    return cluster


def with_part(uid: str, milli: int, memory_mib: int = 0) -> TaskSpec:
    made = task(uid, 1)
    return msgspec.structs.replace(made, gpu_milli=milli, gpu_memory_mib=memory_mib)


async def begin(cluster: Cluster, what: TaskSpec) -> Mapping[str, str]:
    """What the pod of a task is told of its GPUs."""
    devices = TaskDevices(cast("KubeClient", cluster), cluster.claims)
    assert devices.gives(what)
    meta = ObjectMeta(name=what.name, namespace="carrel-a", uid=f"uid-{what.name}")
    async with devices.given(what, meta, asyncio.Event()) as said:
        return said


async def test_a_pod_with_a_part_of_a_gpu_is_told_which_and_how_much() -> None:
    cluster = sharing()
    told = await begin(cluster, with_part("a1", 500))
    assert told == {GPU_UUIDS: "GPU-0", GPU_MEMORY_MIB: str(40 * 1024)}
    told = await begin(cluster, with_part("b1", 110, 8000))
    assert told == {GPU_UUIDS: "GPU-0", GPU_MEMORY_MIB: "8000"}
    results = [
        one
        for made in cluster.made.values()
        if made.status.allocation is not None
        for one in made.status.allocation.devices.results
    ]
    consumed = [int(one.consumed_capacity["memory"]) // 2**20 for one in results]
    assert (sorted(consumed), len({one.share_id for one in results})) == ([8000, 40 * 1024], 2)
    assert sorted(cluster.told) == sorted(cluster.made)


async def test_all_of_a_shared_gpu_needs_no_telling_and_waits_until_nobody_has_a_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_claims, "PAUSES", Pauses(0.0, 0.0, 2))
    cluster = sharing()
    await begin(cluster, with_part("a1", 500))
    with pytest.raises(EngineError, match="are not free yet"):
        await begin(cluster, with_part("b1", 1000))
    cluster.claims.drop_claim(cluster.made.popitem()[1])
    assert await begin(cluster, with_part("b1", 1000)) == {}


async def test_a_part_that_the_driver_does_not_give_is_looked_for_elsewhere() -> None:
    cluster = sharing()
    policy = {"default": "40Gi", "validValues": ["40Gi", "80Gi"]}
    shared = device("gpu-0", allowMultipleAllocations=True)
    shared["attributes"]["uuid"] = {"string": "GPU-0"}
    shared["capacity"]["memory"]["requestPolicy"] = policy
    cluster.claims.inventory.set_slice(device_slice("n0", shared))
    with pytest.raises(NotOnThisNode, match=r"gives no such part of a GPU: 0\.25"):
        await begin(cluster, with_part("a1", 250))


async def test_a_pod_that_asks_for_no_part_by_name_is_refused() -> None:
    cluster = sharing()
    with pytest.raises(EngineError, match="asks for carrel"):
        await begin(cluster, with_part("a0", 500))


async def test_an_instance_is_given_where_the_driver_offers_its_profile() -> None:
    cluster = Cluster()
    cluster.claims.mig_class = DRIVER
    for one in divided(0):
        cluster.claims.inventory.set_slice(one)
    asking = msgspec.structs.replace(task("i0", 0), mig_profile="3g.40gb")
    devices = TaskDevices(cast("KubeClient", cluster), cluster.claims)
    assert devices.gives(asking)
    assert not devices.gives(msgspec.structs.replace(asking, mig_profile="4g.40gb"))
    assert not devices.gives(msgspec.structs.replace(asking, mig_slots=4)), "one that Carrel makes"
    cluster.asks = {"nvidia.com/mig-3g.40gb": "1"}
    assert await begin(cluster, asking) == {}
    assert cluster.given() == ["gpu-0-mig-3g40gb-0"]


def test_parts_of_gpus_that_are_given_whole_are_no_matter_of_claims() -> None:
    cluster = Cluster()
    devices = TaskDevices(cast("KubeClient", cluster), cluster.claims)
    assert not devices.gives(with_part("a1", 500))
    assert devices.gives(with_part("a1", 1000))


def test_a_pod_of_others_with_a_tasks_name_is_no_task() -> None:
    claims = Cluster().claims
    stranger: Pod = pod("x1", 1)
    assert not claims.asks(stranger)


async def test_the_gpus_of_a_pods_claim_are_known_by_their_uuids() -> None:
    """So another GPU of the node that works for nobody known is not this pod's."""
    cluster = sharing()
    devices = TaskDevices(cast("KubeClient", cluster), cluster.claims)
    await begin(cluster, with_part("a1", 1000))
    assert devices.uuids_of("uid-a1") == {"GPU-0"}
    assert devices.uuids_of("uid-b1") == frozenset(), "it has no claim"


async def test_gpus_are_not_known_whose_driver_does_not_say_their_uuids() -> None:
    cluster, bound = Cluster(), list[str]()
    await start(cluster, "a2", bound)
    devices = TaskDevices(cast("KubeClient", cluster), cluster.claims)
    assert devices.uuids_of("uid-a2") == frozenset()
