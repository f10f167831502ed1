"""What the watcher of pods does while the API server can not say whose a pod is."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods import watchers
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    PodDeleted,
    TaskPodSeen,
    UnmanagedPodSeen,
)
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.errors import Unavailable
from carrel_scheduler.kube.reflector import SYNCED, ChangeKind, WatchChange
from carrel_scheduler.quarantine import Quarantine


class Heard:
    """Batches, and silence in between for as long as nothing more is given."""

    def __init__(self, *batches: Sequence[WatchChange[Pod]]) -> None:
        self.waiting: asyncio.Queue[Sequence[WatchChange[Pod]]] = asyncio.Queue()
        for one in batches:
            self.waiting.put_nowait(one)

    def subscribe(self) -> "Heard":
        return self

    async def batch(self) -> Sequence[WatchChange[Pod]]:
        return await self.waiting.get()


class Away:
    """A reader that can not read so many times; afterwards all is read."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def seen(self, pod: Pod) -> TaskPodSeen:
        self.times -= 1
        if self.times >= 0:
            raise Unavailable(503, "ServiceUnavailable", "away")
        return TaskPodSeen(pod)

    def gone(self, pod: Pod) -> PodDeleted:
        return PodDeleted(pod.metadata.uid)


def pod(node: str) -> Pod:
    meta = {"name": "p", "uid": "u"}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node}}, Pod)


async def watched(heard: Any, reader: Any, news: int) -> list[Any]:
    """The first news."""
    told: list[Any] = []
    enough, synced = asyncio.Event(), asyncio.Event()

    def tell(message: ExternalEvents) -> None:
        told.extend(message.events)
        if len(told) >= news:
            enough.set()

    watch = asyncio.create_task(
        watchers.watch_pods(heard, reader, tell, synced, Quarantine(lambda: 0.0))
    )
    waiting = asyncio.create_task(enough.wait())
    await asyncio.wait([watch, waiting], return_when=asyncio.FIRST_COMPLETED)
    assert not watch.done()
    assert synced.is_set()
    watch.cancel()
    return told


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "AGAIN_SECONDS", 0.001)


async def test_it_goes_on_and_reads_again() -> None:
    heard = Heard([WatchChange(ChangeKind.ADDED, pod("")), SYNCED])
    (found,) = await watched(heard, Away(3), 1)
    assert isinstance(found, TaskPodSeen)


async def test_what_a_bound_one_uses_is_counted_meanwhile() -> None:
    heard = Heard([WatchChange(ChangeKind.ADDED, pod("n1")), SYNCED])
    first, second = await watched(heard, Away(1), 2)
    assert isinstance(first, UnmanagedPodSeen)
    assert isinstance(second, TaskPodSeen)


async def test_what_is_gone_is_not_read_again() -> None:
    there, other = pod("n1"), msgspec.convert({"metadata": {"name": "o", "uid": "v"}}, Pod)
    heard = Heard(
        [WatchChange(ChangeKind.ADDED, there), SYNCED],
        [WatchChange(ChangeKind.DELETED, there), WatchChange(ChangeKind.ADDED, other)],
    )
    told = await watched(heard, Away(1), 3)
    assert [type(one) for one in told] == [UnmanagedPodSeen, PodDeleted, TaskPodSeen]
