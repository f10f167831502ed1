"""Watching a cluster: what listing everything and receiving every change cost our process.

The API server is real, the pods are of several kilobytes each, and what counts is the processor
time of the process that watches, decodes into the scheduler's own types, keeps, and tells one
subscriber. Peers get the very same bytes, or the same load in their turn.

* *relist*: all pods, decoded and applied to an empty store (the worst case); the same again with a
  tenth changed. Peers: ``kubernetes_asyncio``'s models (a fifth of the pods: they are slow), and
  Python's own ``json`` without any type.
* *churn*: changes of pods at a rate; see ``kubernetes_churn``.

``python -m benchmarks.kubernetes_watch relist [--pods 5000] [--json]``
``python -m benchmarks.kubernetes_watch churn [--pods 400] [--seconds 15] [--rate 1000] [--json]``
"""

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec

from benchmarks.kubernetes_churn import churn
from benchmarks.kubernetes_cluster import cluster
from benchmarks.kubernetes_pods import NAMESPACE, fill
from benchmarks.report import Figure, median, show
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.decoding import decode_page
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import ChangeKind, Store, WatchChange
from carrel_scheduler.kube.resources import PODS

RELIST_SECONDS = 0.150
REPEATS = 7
PEER_PART = 5


def timed(work: Callable[[], object]) -> float:
    """Processor seconds of one go, with the garbage of what went before collected."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


async def pages_of(client: KubeClient) -> list[bytes]:
    """The pages of a listing of pods, as bytes."""
    pages, more = [], ""
    while True:
        path = f"{PODS.path(NAMESPACE)}?limit=1000{more}"
        pages.append(await client.raw("GET", path))
        token = decode_page(pages[-1], dict).metadata.continue_token
        if not token:
            return pages
        more = f"&continue={token}"


def take_in(pages: Sequence[bytes], store: Store[Pod]) -> list[WatchChange[Pod]]:
    """Decode and apply a listing; what a subscriber receives of it."""
    listed = [found for page in pages for found in decode_page(page, Pod).items or ()]
    return [change for _, change in store.replace(listed)]


def with_changes(pages: Sequence[bytes]) -> list[bytes]:
    """The same listing with every tenth pod in another version."""
    changed = []
    for page in pages:
        found = json.loads(page)
        for one in found["items"][::10]:
            one["metadata"]["resourceVersion"] += "0"
        changed.append(msgspec.json.encode(found))
    return changed


def peer_models(page: bytes) -> object:
    """The page as the generated models of ``kubernetes_asyncio``."""
    from kubernetes_asyncio.client import ApiClient, Configuration

    # Without its connections: what reads an answer needs only the configuration's class.
    reader = ApiClient.__new__(ApiClient)
    reader.configuration = Configuration()
    answer: Any = SimpleNamespace(data=page)
    return reader.deserialize(answer, "V1PodList")


@dataclass(frozen=True, slots=True)
class Whole:
    """A listing over the wire: seconds of the clock, and of our processor."""

    wall: float
    processor: float


async def whole(client: KubeClient) -> Whole:
    """Measure a fresh feed until everything was delivered."""
    feed = Feed(client, PODS, Pod, NAMESPACE)
    began, used = time.perf_counter(), time.process_time()
    async for change in feed.subscribe():
        if change.kind is ChangeKind.SYNCED:
            break
    took = Whole(time.perf_counter() - began, time.process_time() - used)
    await feed.close()
    return took


async def relist(pods: int) -> list[Figure]:
    with cluster() as running:
        await fill(running, pods)
        client = running.client()
        pages = await pages_of(client)
        over_the_wire = [await whole(client) for _ in range(3)]
        await client.close()
    kept: Store[Pod] = Store(Pod)
    changed = with_changes(pages)
    first = median([timed(lambda: take_in(pages, Store(Pod))) for _ in range(REPEATS)])
    take_in(pages, kept)
    again = median(
        [timed(partial(take_in, one, kept)) for _ in range(REPEATS) for one in (changed, pages)]
    )
    plain = median([timed(lambda: [json.loads(page) for page in pages]) for _ in range(3)])
    part = msgspec.json.encode({"items": json.loads(pages[0])["items"][: pods // PEER_PART]})
    peer = timed(lambda: peer_models(part)) * PEER_PART
    size = sum(map(len, pages)) / pods
    whole_time = median([one.processor for one in over_the_wire])
    return [
        Figure(
            f"decode and apply {pods:,} pods, all new",
            first * 1000,
            f"ms ({size / 1000:.1f} kB a pod)",
            "<= 150",
            first <= RELIST_SECONDS,
        ),
        Figure("the same when a tenth of them changed", again * 1000, "ms", "-"),
        Figure("the same with connection and TLS", whole_time * 1000, "ms of our processor", "-"),
        Figure("", median([one.wall for one in over_the_wire]) * 1000, "ms of the clock", "-"),
        Figure("json.loads alone, as a ratio", plain / first, f"x ({plain * 1000:.0f} ms)", "-"),
        Figure("kubernetes_asyncio's models, as a ratio", peer / first, f"x ({peer:.2f} s)", "-"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("relist", "churn"))
    parser.add_argument("--pods", type=int, default=0, help="5000 for relist, 400 for churn")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.what == "relist":
        figures = asyncio.run(relist(given.pods or 5000))
        show("Listing a cluster", figures, as_json=given.json)
    else:
        figures = asyncio.run(churn(given.pods or 400, given.seconds, given.rate))
        show("Changes received", figures, as_json=given.json)


if __name__ == "__main__":
    main()
