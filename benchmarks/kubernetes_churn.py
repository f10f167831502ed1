"""Receiving a thousand changes of pods a second: the processor's share that it takes.

The pods and their changes are those of a real API server, recorded byte by byte; as that server
can not make so many changes a second beside us, a process of its own replays them at the rate
(``kubernetes_replay``), over TLS. Nothing else is left out, and nothing is scaled up: the share is
that of our process while so many events came.

* *watching*: a feed with one subscriber. Peer: ``kubernetes_asyncio``'s ``Watch`` with its models.
* *scheduling*: the scheduler of external pods with its loop, where all of these pods count for a
  project.
"""

import asyncio
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.kubernetes_cluster import Cluster, cluster
from benchmarks.kubernetes_pods import NAMESPACE, fill, tell
from benchmarks.kubernetes_replay import (
    ReplayProcess,
    kubeconfig,
    record_events,
    record_lists,
    write_events,
)
from benchmarks.report import Figure
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.resources import (
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from carrel_scheduler.kube.writes import Writer
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, TaskTokens
from carrel_schema.objects import Meta, Project, ProjectSpec, Quota
from k8s.standalone import Standalone

CORES: Final = 0.5
OTHERS: Final = (
    NODES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
Side = Callable[[Path, float], Coroutine[Any, Any, float]]
"""Listens to the server of a configuration for some seconds; gives its processor's share."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one side: cores, at so many events a second."""

    cores: float
    rate: float


@dataclass(frozen=True, slots=True)
class Recording:
    """A folder with what was recorded, and how to reach the process that replays it."""

    folder: Path
    authority: Path
    kubeconfig: Path


async def churn(pods: int, seconds: float, rate: float) -> list[Figure]:
    """The figures."""
    with tempfile.TemporaryDirectory() as name:
        with cluster() as running:
            recording = await _record(running, pods, Path(name))
        watching = await _under(recording, rate, seconds, watch)
        scheduling = await _under(recording, rate, seconds, schedule)
        peer = await _under(recording, rate, seconds, peer_watch)
    slow = 0.95 * rate
    return [
        Figure(
            f"processor for {rate:,.0f} changes of pods a second, watching",
            watching.cores,
            f"cores ({watching.rate:,.0f}/s came)",
            f"<= {CORES}",
            watching.cores <= CORES and watching.rate >= slow,
        ),
        Figure(
            "the same with the scheduler's loop",
            scheduling.cores,
            f"cores ({scheduling.rate:,.0f}/s came)",
            f"<= {CORES}",
            scheduling.cores <= CORES and scheduling.rate >= slow,
        ),
        Figure(
            "kubernetes_asyncio's watch, as a ratio to watching",
            peer.cores / peer.rate / (watching.cores / watching.rate),
            f"x for each event ({peer.cores:.2f} cores, {peer.rate:,.0f}/s came)",
            "-",
        ),
    ]


async def _record(running: Cluster, pods: int, folder: Path) -> Recording:
    """Pods that run, and one change of each."""
    await fill(running, pods)
    client = running.client()
    of_namespace = PODS.path(NAMESPACE)
    paths = [of_namespace, PODS.path(), *(one.path() for one in OTHERS)]
    await record_lists(client, paths, folder)
    version = (await client.list(PODS, Pod)).version
    recording = asyncio.create_task(record_events(client, PODS, version, pods))
    async with Writer(32) as writer:
        changes = [partial(tell, client, number, 1) for number in range(pods)]
        await asyncio.gather(*(writer.submit(change) for change in changes))
    events = await recording
    for path in (of_namespace, PODS.path()):
        write_events(events, path, folder)
    await client.close()
    authority = folder / "server.crt"
    shutil.copy(running.plane.authority, authority)
    shutil.copy(running.plane.authority.with_suffix(".key"), authority.with_suffix(".key"))
    config = folder / "kubeconfig"
    text = running.kubeconfig.read_text()
    config.touch(mode=0o600)
    config.write_text(text.replace(str(running.plane.authority), str(authority)))
    return Recording(folder, authority, config)


async def _under(recording: Recording, rate: float, seconds: float, side: Side) -> Load:
    """Measure one side while the other process replays; it reports how much it sent."""
    replay = await ReplayProcess.start(recording.folder, recording.authority, rate)
    config = kubeconfig(recording.kubeconfig, replay.url, recording.folder / "replay")
    try:
        cores = await side(config, seconds)
    finally:
        reached = await replay.end()
    return Load(cores, reached)


@asynccontextmanager
async def _client(config: Path) -> AsyncIterator[KubeClient]:
    client = KubeClient(from_kubeconfig(config))
    try:
        yield client
    finally:
        await client.close()


async def _share(seconds: float) -> float:
    """The share of a processor that this process takes from now on."""
    began, used = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - used) / (time.perf_counter() - began)


async def watch(config: Path, seconds: float) -> float:
    """A feed with one subscriber."""

    async def receive(feed: Feed[Pod]) -> None:
        subscription = feed.subscribe()
        while await subscription.batch():
            pass

    async with _client(config) as client, Feed(client, PODS, Pod, NAMESPACE) as feed:
        receiving = asyncio.create_task(receive(feed))
        await feed.synced()
        share = await _share(seconds)
    await receiving
    return share


async def schedule(config: Path, seconds: float) -> float:
    """The scheduler of external pods, whose project has all of the GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/ledger.sqlite"
        ledger = await open_ledger(url, clock=time.time, ids=lambda: uuid.uuid4().hex)
        spec = ProjectSpec(quota=Quota(gpu_milli=1_000_000))
        await ledger.create(Project(meta=Meta(name="vision"), spec=spec))
        launch = LaunchSettings(
            api_url="", checkpoint_root=Path(folder), tokens=TaskTokens(b"k" * 32)
        )
        stop, began = asyncio.Event(), asyncio.Event()
        async with _client(config) as client:
            scheduler = Standalone(client, ledger, launch, "churn", time.time)
            running = asyncio.create_task(scheduler.run(stop, began))
            await began.wait()
            share = await _share(seconds)
            stop.set()
            await running
        await ledger.close()
    return share


async def peer_watch(config: Path, seconds: float) -> float:
    """The watch of ``kubernetes_asyncio`` with its models, from now on."""
    from kubernetes_asyncio import watch as peer
    from kubernetes_asyncio.client import CoreV1Api
    from kubernetes_asyncio.config import new_client_from_config

    api_client = await new_client_from_config(str(config), persist_config=False)
    api = CoreV1Api(api_client)

    async def receive() -> None:
        async with peer.Watch() as stream:
            listing = api.list_namespaced_pod
            async for _ in stream.stream(listing, NAMESPACE, resource_version="1"):
                pass

    receiving = asyncio.create_task(receive())
    share = await _share(seconds)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await api_client.close()
    return share
