"""Orders about pods: one that is refused, or fails in an unforeseen way, holds up no other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods import executor as executor_module
from carrel_scheduler.engines.kubernetes.external_pods.executor import ExecutorLimits, PodExecutor
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    Evict,
    EvictionRefused,
    PodOrders,
)
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import PodRef
from carrel_scheduler.kube.errors import KubeError, TooManyRequests

TIMEOUT_SECONDS = 30.0
PROTECTED = TooManyRequests(429, "TooManyRequests", "a budget protects it")


class Cluster:
    """Refuses to evict some pods; notes how often it was asked for which."""

    def __init__(self, **refusals: Exception) -> None:
        self.refusals = refusals
        self.asked: Counter[str] = Counter()
        self.evicted: set[str] = set()

    async def post_sub(self, _: Any, name: str, *__: Any) -> bytes:
        self.asked[name] += 1
        await asyncio.sleep(0)
        if name in self.refusals:
            raise self.refusals[name]
        self.evicted.add(name)
        return b""

    async def patch(self, *_: Any, **__: Any) -> None:
        """Says why; nobody reads it here."""

    async def create(self, *_: Any, **__: Any) -> None:
        """An event; nobody reads it here."""


@asynccontextmanager
async def at_work(
    cluster: Cluster, heard: "list[ExternalEvents] | None" = None
) -> AsyncIterator[PodExecutor]:
    client: Any = cluster
    nobody: Any = None
    news: list[ExternalEvents] = [] if heard is None else heard
    limits = ExecutorLimits(evictions=2)
    execute = PodExecutor(
        client, nobody, news.append, now=lambda: 0.0, instance="one", limits=limits
    )
    working = asyncio.create_task(execute.run())
    yield execute
    assert not working.done()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


def evictions(*names: str) -> PodOrders:
    pods = [PodRef("carrel-a", name, f"uid-{name}") for name in names]
    return PodOrders(evictions=[Evict(pod, "Reclaimed", "b wants its own", 5.0) for pod in pods])


async def until(holds: Any) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not holds():  # noqa: ASYNC110 - what is asked sets no event
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "refusal", [PROTECTED, KubeError(500, "InternalError", "no"), KeyError("unforeseen")]
)
async def test_pods_that_do_not_give_way_keep_no_other_from_being_evicted(
    refusal: Exception,
) -> None:
    protected = {f"p{number}": refusal for number in range(20)}
    cluster = Cluster(**protected)
    async with at_work(cluster) as execute:
        execute(evictions(*protected, "free"))
        await until(lambda: "free" in cluster.evicted)
        assert execute.counts.evicted == 1


async def test_a_protected_pod_is_asked_again_and_the_loop_hears_if_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor_module, "EVICT_PAUSES", Pauses(0.0, 0.0))
    cluster = Cluster(p=PROTECTED)
    heard: list[ExternalEvents] = []
    async with at_work(cluster, heard) as execute:
        execute(evictions("p"))
        await until(lambda: heard)
        assert cluster.asked["p"] == 6
        [[news]] = [one.events for one in heard]
        assert isinstance(news, EvictionRefused)
        assert "disruption budget" in news.text


async def test_a_budget_that_lets_go_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "EVICT_PAUSES", Pauses(0.0, 0.0))
    monkeypatch.setattr(executor_module, "EVICT_AGAIN_SECONDS", 0.0)
    cluster = Cluster(p=PROTECTED)
    async with at_work(cluster) as execute:
        execute(evictions("p"))
        await until(lambda: cluster.asked["p"] > 10)
        cluster.refusals.clear()
        await until(lambda: execute.counts.evicted == 1)
