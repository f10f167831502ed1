"""Claims for devices on the real API server: allocated, reserved and freed as Kubernetes has it.

Nodes and slices are objects of the test; Kubernetes' controllers make claims from templates and
free those of pods that have ended.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import nanos
from carrel_scheduler.kube.errors import Invalid
from carrel_scheduler.kube.resources import NAMESPACES, PODS, Resource
from k8s.claimed_devices import DRIVER, add_pod, asked, claims, device_class, told
from k8s.cluster.control_plane import ControlPlane
from k8s.scheduling import Site, comes_to_be, running, site

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")


@pytest.fixture
async def here(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    """Two nodes with two GPUs each, which claims ask for."""
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    async with site(kubeconfig, tmp_path) as made:
        await made.add_nodes(2, gpus=0)
        for name in made.nodes:
            await made.client.create(RESOURCE_SLICES, offered(name))
        await made.client.create(DEVICE_CLASSES, device_class(made.name))
        for word in ("a", "b"):
            await made.add_project(word, 2)
        yield made
        for number in range(2):
            await made.client.delete(RESOURCE_SLICES, f"{made.name}-{number}")
        await made.client.delete(DEVICE_CLASSES, made.name)


def offered(node: str) -> dict[str, Any]:
    devices = [
        {"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(2)
    ]
    return {
        "metadata": {"name": node},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


async def given(here: Site, *words: str) -> list[tuple[str, str]]:
    """The devices that claims have, node and name."""
    return [
        (result["pool"], result["device"])
        for word in words
        for one in (await claims(here, word)).values()
        for result in one.get("status", {})
        .get("allocation", {"devices": {}})["devices"]
        .get("results", ())
    ]


async def test_pods_with_claims_are_queued_counted_bound_and_freed(here: Site) -> None:
    for word in ("a", "b"):
        body = {"metadata": {"name": "one"}, "spec": {"spec": asked(here)}}
        await here.client.create(TEMPLATES, body, here.namespace(word))
    async with running(here.scheduler()):
        for number in range(2):
            await add_pod(here, "b", f"b-{number}", resourceClaimTemplateName="one")
        await here.until(lambda: len(here.bound("b")) == 2, "the two of their own quota")
        for number in range(3):
            await add_pod(here, "a", f"a-{number}", resourceClaimTemplateName="one")
        await here.until(lambda: len(here.bound("a")) == 2, "two, and one that waits")
        found = await given(here, "a", "b")
        assert len(found) == len(set(found)) == 4
        for word in ("a", "b"):
            for one in (await claims(here, word)).values():
                if "allocation" not in one.get("status", {}):
                    continue
                [user] = one["status"]["reservedFor"]
                pod = here.of(word)[user["name"]]
                results = one["status"]["allocation"]["devices"]["results"]
                assert {result["pool"] for result in results} == {pod.spec.node_name}
                assert one["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        ended = next(iter(here.bound("a").values()))
        await here.finish(ended)
        await here.until(
            lambda: len(here.bound("a")) == 2 and ended.metadata.name not in here.bound("a"),
            "the third, on the device that Kubernetes' controller freed",
        )
        found = await given(here, "a", "b")
        assert len(found) == len(set(found)) == 4


async def test_a_claim_of_two_pods_serves_one_and_one_that_was_made_anew_serves_none_of_before(
    here: Site,
) -> None:
    space = here.namespace("a")
    await here.client.create(
        RESOURCE_CLAIMS, {"metadata": {"name": "ours"}, "spec": asked(here, 2)}, space
    )
    async with running(here.scheduler()):
        await add_pod(here, "a", "first", resourceClaimName="ours")
        await here.until(lambda: "first" in here.bound("a"), "the first pod")
        await add_pod(here, "a", "second", resourceClaimName="ours")
        said = "is in use by the pod `first`; a claim serves one pod at a time"
        await here.until(told(here, "a", "second", said), "why the second waits")
        await add_pod(here, "b", "stranger", resourceClaimName="ours")
        said = "its resource claim `ours` does not exist"
        await here.until(told(here, "b", "stranger", said), "nothing of another namespace")
        await here.finish(here.of("a")["first"])
        await here.until(lambda: "second" in here.bound("a"), "the second after the first")
        assert len(await given(here, "a")) == 2


async def test_an_allocation_that_a_killed_scheduler_left_is_taken_back(here: Site) -> None:
    space = here.namespace("a")
    await here.client.create(
        RESOURCE_CLAIMS, {"metadata": {"name": "left"}, "spec": asked(here)}, space
    )
    await add_pod(here, "a", "p", resourceClaimName="left")
    pod = await here.client.get(PODS, "p", space)
    node = next(iter(here.nodes))
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": "gpu-1"}
    user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    await here.client.patch(RESOURCE_CLAIMS, "left", {"status": status}, space, sub="status")
    async with running(here.scheduler()):
        await here.until(lambda: "p" in here.bound("a"), "the pod at its place")

        async def in_place() -> bool:
            where = here.bound("a")["p"].spec.node_name
            return [pool for pool, _ in await given(here, "a")] == [where]

        await comes_to_be(in_place)


@pytest.fixture
async def named(here: Site) -> str:
    """An extended resource that the class stands for."""
    resource = f"gpus.example.org/{here.name}"
    body = {"spec": {"extendedResourceName": resource}}
    await here.client.patch(DEVICE_CLASSES, here.name, body)
    return resource


async def add_asking(here: Site, word: str, name: str, resource: str, count: int = 1) -> None:
    amounts = {"cpu": "1", resource: str(count)}
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": amounts, "limits": {resource: str(count)}},
    }
    await here.add_pod(word, name, containers=[container])


async def test_extended_resources_are_served_by_devices_and_freed(here: Site, named: str) -> None:
    async with running(here.scheduler()):
        await add_asking(here, "a", "two", named, 2)
        await here.until(lambda: "two" in here.bound("a"), "the pod with two devices")
        await add_asking(here, "b", "b-0", named)
        await add_asking(here, "b", "b-1", named)
        await here.until(lambda: len(here.bound("b")) == 2, "the two of their own quota")
        found = await given(here, "a", "b")
        assert len(found) == len(set(found)) == 4
        pod = await here.client.get(PODS, "two", here.namespace("a"))
        [(name, claim)] = (await claims(here, "a")).items()
        told = pod["status"]["extendedResourceClaimStatus"]
        assert told["resourceClaimName"] == name
        [mapping] = told["requestMappings"]
        assert (mapping["containerName"], mapping["resourceName"]) == ("main", named)
        assert mapping["requestName"] == claim["spec"]["devices"]["requests"][0]["name"]
        assert claim["metadata"]["annotations"] == {
            "resource.kubernetes.io/extended-resource-claim": "true"
        }
        results = claim["status"]["allocation"]["devices"]["results"]
        assert {one["pool"] for one in results} == {pod["spec"]["nodeName"]}
        await add_asking(here, "a", "next", named, 2)
        await here.until(told_words(here, "a", "next"), "why the next waits")
        await here.finish(here.of("a")["two"])
        await here.until(lambda: "next" in here.bound("a"), "the next, on what was freed")


def told_words(here: Site, word: str, name: str) -> Callable[[], bool]:
    """Whether a pod was told anything."""
    return told(here, word, name, ".")


async def test_a_claim_that_a_killed_scheduler_made_is_deleted_and_made_anew(
    here: Site, named: str
) -> None:
    space = here.namespace("a")
    await add_asking(here, "a", "p", named)
    pod = await here.client.get(PODS, "p", space)
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": pod["metadata"]["uid"],
        "controller": True,
    }
    meta = {
        "name": "left",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    await here.client.create(RESOURCE_CLAIMS, {"metadata": meta, "spec": asked(here)}, space)
    async with running(here.scheduler()):
        await here.until(lambda: "p" in here.bound("a"), "the pod with a claim of its own")
        assert "left" not in await claims(here, "a")
        assert len(await given(here, "a")) == 1


async def test_a_gpu_and_its_parts_are_never_given_at_once(here: Site) -> None:
    """A node whose one GPU is offered as a whole and as two halves, as its driver would."""
    name = f"{here.name}-parts"
    await here.add_node(name, gpus=0)
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
    common = {"driver": DRIVER, "nodeName": name, "pool": pool}
    memory = {"memory": {"value": "80Gi"}}
    sets = [{"name": "gpu-0", "counters": memory}]
    devices = []
    for device, size in (("whole", "80Gi"), ("half-0", "40Gi"), ("half-1", "40Gi")):
        uses = [{"counterSet": "gpu-0", "counters": {"memory": {"value": size}}}]
        kind = {"type": {"string": "gpu"}, "kind": {"string": device.partition("-")[0]}}
        devices.append({"name": device, "attributes": kind, "consumesCounters": uses})
    for word, content in (("sets", {"sharedCounters": sets}), ("devices", {"devices": devices})):
        body = {"metadata": {"name": f"{name}-{word}"}, "spec": {**common, **content}}
        await here.client.create(RESOURCE_SLICES, body)

    async def ask(pod: str, kind: str) -> None:
        known = f'device.attributes["{DRIVER}"]'
        expression = f'"kind" in {known} && {known}.kind == "{kind}"'
        claim = asked(here)
        claim["devices"]["requests"][0]["exactly"]["selectors"] = [
            {"cel": {"expression": expression}}
        ]
        body = {"metadata": {"name": pod}, "spec": claim}
        await here.client.create(RESOURCE_CLAIMS, body, here.namespace("a"))
        await add_pod(here, "a", pod, resourceClaimName=pod)

    try:
        async with running(here.scheduler()):
            await ask("h0", "half")
            await here.until(lambda: "h0" in here.bound("a"), "a half")
            await ask("w", "whole")
            await here.until(told_words(here, "a", "w"), "why the whole waits")
            await ask("h1", "half")
            await here.until(lambda: "h1" in here.bound("a"), "the other half")
            assert sorted(await given(here, "a")) == [(name, "half-0"), (name, "half-1")]
            for pod in ("h0", "h1"):
                await here.finish(here.of("a")[pod])
            await here.until(lambda: "w" in here.bound("a"), "the whole, once both are free")
    finally:
        for word in ("sets", "devices"):
            await here.client.delete(RESOURCE_SLICES, f"{name}-{word}")


async def test_parts_of_a_shared_device_are_given_until_no_more_is_left(here: Site) -> None:
    """A node whose one GPU several claims may share; the API server checks what is written."""
    name = f"{here.name}-shared"
    await here.add_node(name, gpus=0)
    policy = {"default": "10Gi", "validRange": {"min": "10Gi", "step": "5Gi"}}
    gpu = {
        "name": "gpu-0",
        "attributes": {"type": {"string": "gpu"}, "kind": {"string": "shared"}},
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}},
        "allowMultipleAllocations": True,
    }
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": [gpu]}
    made = await here.client.create(RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})
    assert made["spec"]["devices"][0]["allowMultipleAllocations"], "the feature is on here"

    async def ask(pod: str, memory: str = "") -> None:
        claim = asked(here)
        exactly = claim["devices"]["requests"][0]["exactly"]
        exactly["selectors"] = [{"cel": {"expression": "device.allowMultipleAllocations"}}]
        if memory:
            exactly["capacity"] = {"requests": {"memory": memory}}
        body = {"metadata": {"name": pod}, "spec": claim}
        await here.client.create(RESOURCE_CLAIMS, body, here.namespace("a"))
        await add_pod(here, "a", pod, resourceClaimName=pod)

    try:
        async with running(here.scheduler()):
            await ask("m", "42Gi")
            await ask("d")
            await here.until(lambda: len(here.bound("a")) == 2, "two of one device")
            await ask("n", "30Gi")
            await here.until(told_words(here, "a", "n"), "why the third waits")
            found = await claims(here, "a")
            results = [found[one]["status"]["allocation"]["devices"]["results"][0] for one in "md"]
            consumed = [nanos(one["consumedCapacity"]["memory"]) for one in results]
            assert consumed == [nanos("45Gi"), nanos("10Gi")], "as its policy raises them"
            assert len({one["shareID"] for one in results}) == 2
            await here.finish(here.of("a")["m"])
            await here.until(lambda: "n" in here.bound("a"), "the third, in the room of the first")
    finally:
        await here.client.delete(RESOURCE_SLICES, name)


async def add_claiming(here: Site, word: str, name: str, **spec: Any) -> None:
    """A pod with a claim of this specification."""
    body = {"metadata": {"name": name}, "spec": {"devices": spec}}
    await here.client.create(RESOURCE_CLAIMS, body, here.namespace(word))
    await add_pod(here, word, name, resourceClaimName=name)


async def test_all_devices_unlike_ones_and_those_of_administrators(here: Site) -> None:
    """As the API server takes them; access as an administrator only where a namespace has it."""
    every = {"deviceClassName": here.name, "allocationMode": "All"}
    look = {"deviceClassName": here.name, "allocationMode": "All", "adminAccess": True}
    async with running(here.scheduler()):
        await add_claiming(here, "b", "all", requests=[{"name": "gpu", "exactly": every}])
        await here.until(lambda: "all" in here.bound("b"), "the pod with all of a node")
        assert len(set(await given(here, "b"))) == 2
        requests = [{"name": "gpu", "exactly": look}]
        with pytest.raises(Invalid, match="admin"):
            await add_claiming(here, "a", "look", requests=requests)
        labels = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        await here.client.patch(NAMESPACES, here.namespace("a"), labels)
        await add_claiming(here, "a", "look", requests=requests)
        await here.until(lambda: "look" in here.bound("a"), "the administrator's pod")
        [claim] = (await claims(here, "a")).values()
        results = claim["status"]["allocation"]["devices"]["results"]
        assert [one["adminAccess"] for one in results] == [True, True]
        unlike = [{"distinctAttribute": f"{DRIVER}/type"}]
        two = [{"name": "gpu", "exactly": {"deviceClassName": here.name, "count": 2}}]
        await add_claiming(here, "a", "unlike", requests=two, constraints=unlike)
        await here.until(told_words(here, "a", "unlike"), "why two of one type wait")
        await add_claiming(here, "a", "own", requests=two)
        await here.until(lambda: "own" in here.bound("a"), "the GPUs that nobody else has")
