"""Shares of GPUs on a real node: a kubelet gives GPUs that a device plugin offers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from carrel_scheduler.engines.contract import TaskPhase, TaskSpec
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import ReservationSettings
from carrel_scheduler.engines.kubernetes.shared_gpus.reservations import GpuReservations
from carrel_scheduler.engines.kubernetes.tasks.engine import KubernetesEngine
from carrel_scheduler.engines.kubernetes.tasks.manifest import pod
from carrel_scheduler.kube.errors import AlreadyExists
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.resources import NAMESPACES, PODS
from carrel_schema.names import GPU_UUIDS, RESERVATIONS_NAMESPACE, namespace_of
from contract.engine_tasks import a_task, output, wait_for
from k8s.cluster.loading import Images
from k8s.cluster.node import Node
from k8s.cluster_engines import RESTRICTED, ClusterEngines, storage_of, until
from k8s.device_plugin import UUIDS

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
PROJECT = "halves"
NAMESPACE = namespace_of(PROJECT)
# Says which GPU it has and what its limiter is told, and stays.
SAYS = """
echo "$NVIDIA_VISIBLE_DEVICES $CARREL_GPU_SHARE $CARREL_GPU_MEMORY_MIB"
cat /dev/carrel-gpu/limits /etc/ld.so.preload
echo -n x 2>/dev/null >> /dev/carrel-gpu/limits || echo kept
grep -c carrel_gpu_limit /proc/self/maps
sleep 600
"""


class Sharing:
    """Engines of successive schedulers on that node."""

    def __init__(self, engines: ClusterEngines, image: str) -> None:
        self.engines, self.image = engines, image
        self._begun: list[tuple[GpuReservations, Feed[Pod]]] = []

    async def open(self) -> KubernetesEngine:
        """A scheduler that starts."""
        client = self.engines.client
        feed = Feed(client, PODS, Pod)
        holders = ReservationSettings(self.image, "Never", seconds=60.0)
        gpus = GpuReservations(
            client,
            feed,
            holders,
            epoch=self.engines._epoch,
            now=time.time,
        )
        self._begun.append((gpus, feed))
        await gpus.open()
        return await self.engines.open(gpus=gpus)

    async def kill(self) -> None:
        """The scheduler that runs ends."""
        while self._begun:
            gpus, feed = self._begun.pop()
            await gpus.close()
            await feed.close()

    async def reservations(self) -> dict[str, Pod]:
        """Those of the node that there are."""
        found = await self.engines.client.list(PODS, Pod, namespace=RESERVATIONS_NAMESPACE)
        own = (pod for pod in found.items if pod.spec.node_name in ("", self.engines.node))
        return {pod.metadata.name: pod for pod in own}


@pytest.fixture
async def sharing(plugged: Node, images: Images) -> AsyncIterator[Sharing]:
    image = images.on(plugged, "trainer").name
    storage = storage_of(plugged)
    opener = ClusterEngines(plugged.kubeconfig, plugged.name, image, storage)
    await opener.prepare(NAMESPACE)
    space = {"metadata": {"name": RESERVATIONS_NAMESPACE, "labels": RESTRICTED}}
    with suppress(AlreadyExists):
        await opener.client.create(NAMESPACES, space)
    made = Sharing(opener, image)
    yield made
    await made.kill()
    for name in await made.reservations():
        await opener.client.delete(PODS, name, RESERVATIONS_NAMESPACE, grace_seconds=0)
    await opener.clean()


def share(sharing: Sharing, uid: str, device: int, **fields: Any) -> TaskSpec:
    given = {
        "project": PROJECT,
        "gpu_milli": 500,
        "gpu_memory_mib": 1024,
        "devices": (device,),
        **fields,
    }
    return a_task(sharing.engines, fields.pop("script", SAYS), uid=uid, **given)


async def running(engine: KubernetesEngine, task: TaskSpec) -> list[str]:
    """Start a task; what it says."""
    stream = engine.watch()
    await engine.start(task)
    await wait_for(engine, stream, task, TaskPhase.RUNNING)
    said: list[bytes] = []

    async def complete() -> bool:
        said[:] = (await output(engine, task)).splitlines()
        return len(said) >= 5

    await until(complete)
    return [line.decode() for line in said]


async def end(engine: KubernetesEngine, task: TaskSpec) -> None:
    stream = engine.watch()
    await engine.stop(task.id, 1.0)
    await wait_for(engine, stream, task, TaskPhase.ENDED)


async def test_two_tasks_share_a_gpu_and_the_last_one_gives_it_back(sharing: Sharing) -> None:
    engine = await sharing.open()
    first, second, third = (share(sharing, f"w{n}", n // 3) for n in (1, 2, 3))
    told = await running(engine, first)
    gpu = told[0].split()[0]
    assert gpu in UUIDS
    library = "/dev/carrel-gpu/libcarrel_gpu_limit.so"
    assert told[0] == f"{gpu} 0.5 1024"
    assert told[1:4] == [f"{gpu} {1024 * 2**20}", library, "kept"]
    assert int(told[4]) > 0, "every program has the limiter"
    assert (await running(engine, second))[0].split()[0] == gpu
    other = (await running(engine, third))[0].split()[0]
    assert {gpu, other} == set(UUIDS)
    assert len(await sharing.reservations()) == 2

    await sharing.kill()
    engine = await sharing.open()
    await end(engine, first)
    assert len(await sharing.reservations()) == 2, "the next scheduler knows who uses which"
    await end(engine, second)
    whole = a_task(
        sharing.engines, "exit 0", uid="w4", project=PROJECT, gpu_milli=1000, devices=(0,)
    )
    stream = engine.watch()
    await engine.start(whole)
    ended = await wait_for(engine, stream, whole, TaskPhase.ENDED)
    assert (ended.exit_code, ended.message) == (0, ""), "its node had a GPU for it"
    assert len(await sharing.reservations()) == 1
    await end(engine, third)

    async def nothing_is_held() -> bool:
        return not await sharing.reservations()

    await until(nothing_is_held)


async def test_work_whose_reservation_is_deleted_ends_before_the_gpu_is_given_away(
    sharing: Sharing,
) -> None:
    engine = await sharing.open()
    task = share(sharing, "w5", 0)
    await running(engine, task)
    (name,) = await sharing.reservations()
    stream = engine.watch()
    await sharing.engines.client.delete(PODS, name, RESERVATIONS_NAMESPACE)
    again = share(sharing, "w6", 0)
    starting = asyncio.create_task(engine.start(again))
    ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
    assert ended.lost
    await starting
    assert name in await sharing.reservations()
    await end(engine, again)


async def test_a_workspace_of_the_hub_shares_a_gpu_with_a_job(sharing: Sharing) -> None:
    engine = await sharing.open()
    job = share(sharing, "w7", 0)
    gpu = (await running(engine, job))[0].split()[0]
    task = share(sharing, "w8", 0, command=(), external=True, kind="workspace")
    made = pod(share(sharing, "w8", 0), sharing.engines.settings)
    made["metadata"] |= {"name": "jupyter-ada", "finalizers": []}
    stream = engine.watch()
    starting = asyncio.create_task(engine.start(task))
    await sharing.engines.client.create(PODS, made, NAMESPACE)
    await starting
    await wait_for(engine, stream, task, TaskPhase.RUNNING)
    found = await sharing.engines.client.get(PODS, "jupyter-ada", NAMESPACE, Pod)
    assert found.metadata.annotations[GPU_UUIDS] == gpu
    await end(engine, job)
    assert len(await sharing.reservations()) == 1, "the workspace goes on with it"
    await end(engine, task)

    async def nothing_is_held() -> bool:
        return not await sharing.reservations()

    await until(nothing_is_held)
