"""Feeds over a real API server that is killed, compacted, cut and frozen."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from carrel_scheduler.kube.client import KubeClient, Listing
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.errors import AlreadyExists, Forbidden, NotFound, Unavailable
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.metadata import PartialObject
from carrel_scheduler.kube.reflector import ReflectorTiming
from carrel_scheduler.kube.resources import CLUSTER_ROLE_BINDINGS, CONFIG_MAPS
from carrel_scheduler.kube.writes import Writer
from k8s.cluster import binaries
from k8s.cluster.plane import ControlPlane
from k8s.cluster.records import Record
from k8s.feed_listener import SPACE, TIMEOUT_SECONDS, FeedListener
from k8s.proxy import Proxy
from k8s.restartable_server import RestartableServer

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
CUTS = 5
WITHOUT_CACHE = "--watch-cache=false"


@pytest.fixture(scope="module")
def restartable() -> Iterator[RestartableServer]:
    programs = binaries.control_plane(lambda line: print(line, flush=True))
    record = Record.begin()
    try:
        made = RestartableServer(programs, record)
        made.start()
        yield made
    finally:
        record.end()


@pytest.fixture
async def proxy(restartable: RestartableServer) -> AsyncIterator[Proxy]:
    made = Proxy(int(restartable.plane.url.rpartition(":")[2]))
    yield made
    await made.close()


@pytest.fixture
async def client(restartable: RestartableServer, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client of the server itself; every object of an earlier test is gone."""
    made = KubeClient(from_kubeconfig(restartable.plane.kubeconfig(tmp_path / "direct")))
    await made.raw("DELETE", CONFIG_MAPS.path(SPACE))
    yield made
    await made.close()


class Counting(KubeClient):
    """Counts how often everything was listed."""

    lists = 0

    @override
    async def list(self, *parts: Any, **named: Any) -> Listing[Any]:
        self.lists += 1
        return await super().list(*parts, **named)


@pytest.fixture
async def through(
    restartable: RestartableServer, proxy: Proxy, tmp_path: Path
) -> AsyncIterator[Counting]:
    """A client whose connections go through the proxy."""
    here = ControlPlane(
        f"https://127.0.0.1:{await proxy.start()}",
        restartable.plane.authority,
        restartable.plane.admin_token,
    )
    made = Counting(from_kubeconfig(here.kubeconfig(tmp_path / "through")))
    yield made
    await made.close()


def feed_of(client: KubeClient, timing: ReflectorTiming = ReflectorTiming()) -> Feed[PartialObject]:  # noqa: B008
    return Feed(client, CONFIG_MAPS, PartialObject, SPACE, timing=timing)


async def put(client: KubeClient, name: str, text: str = "") -> None:
    found = {"metadata": {"name": name}, "data": {"text": text}}
    try:
        await client.create(CONFIG_MAPS, found, SPACE)
    except AlreadyExists:
        await client.patch(CONFIG_MAPS, name, {"data": {"text": text}}, SPACE)


async def churn(client: KubeClient, seed: int, times: int, size: int = 10) -> None:
    """Make, change and delete a few objects; survives a server that is away for a while."""
    chance = random.Random(seed)
    for step in range(times):
        name = f"o{chance.randrange(8)}"
        try:
            if chance.random() < 0.3:
                await client.delete(CONFIG_MAPS, name, SPACE)
            else:
                await put(client, name, f"{step}" * size)
        except (NotFound, AlreadyExists):
            pass  # another of the random deeds
        except Unavailable:
            await asyncio.sleep(0.1)


async def churn_until(holds: Callable[[], bool], client: KubeClient, seed: int) -> None:
    """Large objects, at least for a while."""
    await churn(client, seed, 150, size=8_000)
    while not holds():
        seed += 1
        await churn(client, seed, 20, size=8_000)


async def test_a_server_that_is_killed_and_comes_back(
    restartable: RestartableServer, client: KubeClient
) -> None:
    feed = feed_of(client)
    listener = FeedListener(feed)
    working = asyncio.create_task(churn(client, 1, 300))
    await listener.until(lambda: len(listener.told) > 20)
    await asyncio.to_thread(restartable.kill)
    await listener.until(lambda: isinstance(feed.trouble, Unavailable))
    await asyncio.to_thread(restartable.start)
    await put(client, "after-it")
    await listener.until(lambda: ("ADDED", "after-it") in listener.told)
    await working
    await listener.like(client)
    assert feed.trouble is None
    await listener.end()


async def test_connections_cut_within_events(
    client: KubeClient, through: Counting, proxy: Proxy
) -> None:
    listener = FeedListener(feed_of(through))
    await listener.until(lambda: listener.synced)
    working = asyncio.create_task(churn_until(lambda: proxy.cuts >= CUTS, client, 2))
    chance = random.Random(2)
    while not working.done():
        cuts, heard = proxy.cuts, len(listener.told)
        proxy.cut_after = chance.randrange(1, 60_000)
        await listener.until(lambda: proxy.cuts > cuts or working.done())  # noqa: B023 - of this turn
        await listener.until(lambda: len(listener.told) > heard or working.done())  # noqa: B023
    await working
    proxy.cut_after = None
    await listener.like(client)
    assert proxy.cuts >= CUTS
    assert through.lists == 1
    await listener.end()


async def test_what_was_compacted_meanwhile_is_told_as_a_difference(
    restartable: RestartableServer, client: KubeClient, through: Counting, proxy: Proxy
) -> None:
    restartable.run_with(WITHOUT_CACHE)
    for name in ("same", "changed", "gone"):
        await put(client, name)
    listener = FeedListener(feed_of(through))
    await listener.until(lambda: listener.synced)
    listener.told.clear()
    proxy.refusing = True
    proxy.cut()
    await client.delete(CONFIG_MAPS, "gone", SPACE)
    await put(client, "changed", "again")
    await put(client, "new")
    restartable.compact()
    proxy.refusing = False
    await listener.like(client)
    assert listener.told == [("DELETED", "gone"), ("MODIFIED", "changed"), ("ADDED", "new")]
    assert through.lists == 2
    await put(client, "later")
    await listener.like(client)
    assert (listener.told[3:], through.lists) == ([("ADDED", "later")], 2)
    await listener.end()


async def test_pages_whose_version_was_compacted_are_read_anew(
    restartable: RestartableServer, client: KubeClient
) -> None:
    restartable.run_with(WITHOUT_CACHE)
    for number in range(5):
        await put(client, f"o{number}")
    paths: list[str] = []
    send = client._sender.send

    async def compacting(request: Any, *parts: Any, **named: Any) -> bytes:
        answer = await send(request, *parts, **named)
        paths.append(request.path)
        if len(paths) == 1:
            await put(client, "o5")
            restartable.compact()
        return answer

    client._sender.send = compacting  # type: ignore[method-assign]
    listing = await client.list(CONFIG_MAPS, PartialObject, SPACE, limit=2)
    assert {one.metadata.name for one in listing.items} == {f"o{number}" for number in range(6)}


async def test_a_watch_that_falls_silent(
    client: KubeClient, through: Counting, proxy: Proxy
) -> None:
    feed = feed_of(through, ReflectorTiming(silent=2.0))
    listener = FeedListener(feed)
    await put(client, "before")
    await listener.until(lambda: ("ADDED", "before") in listener.told)
    proxy.frozen.set()
    await put(client, "within")
    await listener.until(lambda: "silent" in str(feed.trouble))
    proxy.frozen.clear()
    await listener.like(client)
    assert through.lists == 1
    await listener.end()


async def is_allowed(worker: KubeClient) -> None:
    """Wait until the server has heard of the worker's rights."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            with suppress(Forbidden):
                await put(worker, "crowded-0")
                return
            await asyncio.sleep(0.1)


async def test_a_server_without_room_gets_every_write_once(
    restartable: RestartableServer, client: KubeClient, tmp_path: Path
) -> None:
    restartable.run_with(
        "--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=1"
    )
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "worker"}
    allowed = {"metadata": {"name": "worker"}, "roleRef": role, "subjects": [subject]}
    await client.create(CLUSTER_ROLE_BINDINGS, allowed)
    pauses: list[float] = []

    async def shortened(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(seconds / 10)

    config = restartable.plane.kubeconfig(tmp_path / "worker", restartable.worker_token)
    worker = KubeClient(from_kubeconfig(config), pause=shortened)
    await is_allowed(worker)
    async with Writer(16) as writer:
        names = [f"crowded-{number}" for number in range(100)]
        await asyncio.gather(*(writer.submit(partial(put, worker, name)) for name in names))
    await worker.close()
    listing = await client.list(CONFIG_MAPS, PartialObject, SPACE)
    assert {one.metadata.name for one in listing.items} == set(names)
    assert pauses
    assert min(pauses) >= 1.0  # the server asks for a second
