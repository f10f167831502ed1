"""Claims for devices on a real node: its kubelet has a driver prepare what Carrel allocated.

Pods of others with claims; and the pod that the Hub's spawner makes of a workspace, which asks for
GPUs by name.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.contract import TaskPhase, TaskSpec
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DeviceClass,
    ResourceSlice,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import nanos
from carrel_scheduler.engines.kubernetes.tasks.device_claims import TaskDevices
from carrel_scheduler.kube.resources import NODES, PODS, SECRETS, Resource
from carrel_spawner.kubernetes import manifests
from contract.engine_tasks import PROJECT, a_task, output, wait_for
from k8s.cluster import pods
from k8s.cluster.loading import Images
from k8s.cluster_engines import NAMESPACE, ClusterEngines, storage_of, until
from k8s.device_driver import DRIVER, DeviceDriver
from k8s.scheduling import ONLY, Site, comes_to_be, running, site
from unit.spawner_kubernetes import pods as spawners

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
# Says which devices its container was given, and stays.
SAYS = "env | grep ^FAKE_GPU | sort; echo .; exec sleep 600"


@pytest.fixture(scope="module")
def image(driver: DeviceDriver, images: Images) -> str:
    return images.on(driver.node, "trainer").name


@pytest.fixture
async def here(driver: DeviceDriver, tmp_path: Path) -> AsyncIterator[Site]:
    """Two projects and a class, for that node only."""
    async with site(driver.node.kubeconfig, tmp_path) as made:
        made.real.add(driver.node.name)
        labels = {"metadata": {"labels": {ONLY: made.name}}}
        await made.client.patch(NODES, driver.node.name, labels)
        expression = f'device.driver == "{DRIVER}"'
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        await made.client.create(DEVICE_CLASSES, {"metadata": {"name": made.name}, "spec": spec})
        for word in ("a", "b"):
            await made.add_project(word, 1)
            exactly = {"deviceClassName": made.name, "count": 1}
            asked = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
            body = {"metadata": {"name": "one"}, "spec": {"spec": asked}}
            await made.client.create(TEMPLATES, body, made.namespace(word))
        yield made
        await made.client.delete(DEVICE_CLASSES, made.name)


async def add_pod(here: Site, image: str, word: str, name: str, template: str = "one") -> None:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SAYS],
        "resources": {"requests": {"cpu": "10m"}, "claims": [{"name": "gpu"}]},
    }
    use = {"name": "gpu", "resourceClaimTemplateName": template}
    await here.add_pod(
        word, name, containers=[container], resourceClaims=[use], terminationGracePeriodSeconds=1
    )


async def told(here: Site, driver: DeviceDriver, word: str, name: str) -> list[str]:
    """What a pod's container was told, once it runs."""
    space = here.namespace(word)

    async def said() -> bool:
        found = await here.client.get(PODS, name, space)
        if found["status"].get("phase") != "Running":
            return False
        return pods.log(driver.node.plane, name, space).endswith(".\n")

    await comes_to_be(said)
    return pods.log(driver.node.plane, name, space).splitlines()[:-1]


async def allocated(here: Site, word: str, name: str) -> list[str]:
    """The devices of a pod's claim."""
    pod = await here.client.get(PODS, name, here.namespace(word))
    claim = await claim_of(here, word, pod)
    return [one["device"] for one in claim["status"]["allocation"]["devices"]["results"]]


async def claim_of(here: Site, word: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    [made] = pod["status"]["resourceClaimStatuses"]
    return await here.client.get(RESOURCE_CLAIMS, made["resourceClaimName"], here.namespace(word))


async def test_containers_see_the_devices_that_were_allocated_to_their_claims(
    here: Site, driver: DeviceDriver, image: str
) -> None:
    seen: dict[str, str] = {}
    async with running(here.scheduler()):
        for word in ("a", "b"):
            await add_pod(here, image, word, "p")
        for word in ("a", "b"):
            [line] = await told(here, driver, word, "p")
            [device] = await allocated(here, word, "p")
            assert line == f"FAKE_GPU_0={device}"
            seen[word] = device
        assert set(seen.values()) == {"gpu-0", "gpu-1"}
        await add_pod(here, image, "a", "next")
        driver.kill()  # its claims stay prepared, its devices stay offered
        driver.start()
        assert len(driver.prepared()) == 2
        assert "next" not in here.bound("a")

        await here.client.delete(PODS, "p", here.namespace("a"))
        [line] = await told(here, driver, "a", "next")
        assert line == f"FAKE_GPU_0={seen['a']}", "the one that was freed"
        for word, name in (("a", "next"), ("b", "p")):
            await here.client.delete(PODS, name, here.namespace(word))

        async def nothing_is_prepared() -> bool:
            return not driver.prepared()

        await comes_to_be(nothing_is_prepared)


@pytest.fixture
async def engines(driver: DeviceDriver, image: str) -> AsyncIterator[ClusterEngines]:
    made = ClusterEngines(driver.node.kubeconfig, driver.node.name, image, storage_of(driver.node))
    await made.prepare()
    yield made
    await made.clean()


@pytest.fixture(autouse=True)
def _no_cluster_of_the_spawner(monkeypatch: pytest.MonkeyPatch) -> None:
    spawners.without_cluster(monkeypatch)


async def make_pod(engines: ClusterEngines, task: TaskSpec) -> None:
    """The Hub's spawner makes the pod of a workspace, whose server is a shell."""
    one = spawners.spawner(cmd=["sh", "-c", SAYS], volumes=[], volume_mounts=[])
    one.image, one.image_pull_policy = engines.settings.image, "Never"
    asked = {"gpus": task.gpu_milli / 1000, "mig_profile": task.mig_profile}
    small = {"cpu_millicores": 10, "memory_bytes": 64 * 1024**2}
    workload = spawners.workload(**asked, **small)
    workload = msgspec.structs.replace(workload, project=PROJECT, uid=task.id.workload_uid)
    body = await spawners.manifest(one, workload)
    name, labels = body["metadata"]["name"], body["metadata"]["labels"]
    secret = manifests.secret_manifest(name, one.get_env(), labels)
    await engines.client.create(SECRETS, secret, NAMESPACE)
    await engines.client.create(PODS, body, NAMESPACE)


async def given_to_a_workspace(
    here: Site, engines: ClusterEngines, driver: DeviceDriver, claims: DeviceClaims, **asked: Any
) -> list[str]:
    """The devices that a workspace's container was told of; it ends then."""
    for found in (await here.client.list(RESOURCE_SLICES, ResourceSlice)).items:
        claims.inventory.set_slice(found)
    claims.set_class(await here.client.get(DEVICE_CLASSES, here.name, type=DeviceClass))
    engine = await engines.open(devices=TaskDevices(engines.client, claims))
    task = a_task(engines, SAYS, command=(), external=True, kind="workspace", **asked)
    stream = engine.watch()
    await make_pod(engines, task)
    await engine.start(task)
    await wait_for(engine, stream, task, TaskPhase.RUNNING)

    async def complete() -> bool:
        return (await output(engine, task)).endswith(b".\n")

    await until(complete)
    told = (await output(engine, task)).decode().splitlines()[:-1]
    assert len(driver.prepared()) == 1
    await engine.stop(task.id, 1.0)
    await wait_for(engine, stream, task, TaskPhase.ENDED)

    async def nothing_is_prepared() -> bool:
        return not driver.prepared()

    await until(nothing_is_prepared)
    return [line.partition("=")[2] for line in told]


async def test_a_workspace_of_the_hub_gets_gpus_by_a_claim(
    here: Site, engines: ClusterEngines, driver: DeviceDriver
) -> None:
    claims = DeviceClaims(task_class=here.name)
    asked: dict[str, Any] = {"uid": "w1", "gpu_milli": 2000, "devices": (0, 1)}
    given = await given_to_a_workspace(here, engines, driver, claims, **asked)
    assert sorted(given) == ["gpu-0", "gpu-1"]


async def test_a_workspace_of_the_hub_gets_a_mig_instance_by_a_claim(
    here: Site, engines: ClusterEngines, driver: DeviceDriver
) -> None:
    claims = DeviceClaims(mig_class=here.name)
    asked: dict[str, Any] = {"uid": "w2", "gpu_milli": 0, "mig_profile": "3g.40gb"}
    with driver.offering(("gpu-0",), "--halves"):
        given = await given_to_a_workspace(here, engines, driver, claims, **asked)
    assert given in (["gpu-0-half-0"], ["gpu-0-half-4"])


@pytest.fixture
def sharing(driver: DeviceDriver) -> Iterator[DeviceDriver]:
    """The node's driver offers one GPU of 80 GiB that claims share."""
    with driver.offering(("shared-0",), "--shared", "--memory=80Gi"):
        yield driver


async def test_containers_share_a_device_as_far_as_it_goes(
    here: Site, sharing: DeviceDriver, image: str
) -> None:
    capacity = {"requests": {"memory": "30Gi"}}
    exactly = {"deviceClassName": here.name, "count": 1, "capacity": capacity}
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    for word in ("a", "b"):
        body = {"metadata": {"name": "part"}, "spec": {"spec": asked}}
        await here.client.create(TEMPLATES, body, here.namespace(word))
    async with running(here.scheduler()):
        for word in ("a", "b"):
            await add_pod(here, image, word, "p", "part")
            [line] = await told(here, sharing, word, "p")
            device, _, memory = line.partition("=")[2].partition(" memory=")
            assert (device, nanos(memory)) == ("shared-0", nanos("30Gi"))
        await add_pod(here, image, "a", "more", "part")
        await here.until(lambda: _is_told(here), "why the third of 30 GiB waits")
        assert len(sharing.prepared()) == 2
        await here.client.delete(PODS, "p", here.namespace("b"))
        await told(here, sharing, "a", "more")
        for name in ("p", "more"):
            await here.client.delete(PODS, name, here.namespace("a"))

        async def nothing_is_prepared() -> bool:
            return not sharing.prepared()

        await comes_to_be(nothing_is_prepared)


def _is_told(here: Site) -> bool:
    pod = here.of("a").get("more")
    return pod is not None and any(one.reason for one in pod.status.conditions)
