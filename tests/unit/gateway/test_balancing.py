"""Bursts: no server gets more than it should have while others with room come."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from carrel.models import Workload
from carrel_hub.gateway import balancing
from carrel_hub.gateway.balancing import LoadBalancer, await_capacity
from carrel_hub.gateway.routing import RoutedWorkload, RoutingTable, routed_workload

HERE = "127.0.0.1"


def endpoint(version: int, *ready: str, most: int = 3, starting: int = 0) -> RoutedWorkload:
    targets = [{"uid": one, "host": HERE, "ports": {"main": 1}} for one in ready]
    inference = {"max_replicas": most, "in_flight_per_replica": 1}
    told = {
        "name": "e",
        "project": "vision",
        "uid": "u1",
        "resource_version": version,
        "spec": {"kind": "inference", "user": "ada", "routes": [{}], "inference": inference},
        "status": {"phase": "running", "endpoint": {"targets": targets, "starting": starting}},
    }
    found = routed_workload(msgspec.convert(told, Workload), HERE)
    assert found is not None
    return found


class Burst:
    """Requests that each take their server until they are told to end."""

    def __init__(self, place: RoutedWorkload) -> None:
        self.table = RoutingTable()
        self.table.put(place)
        self.balancer = LoadBalancer(freed=self.table.notify)
        self.at: dict[int, str] = {}
        self.most: dict[str, int] = {}
        self.ends: dict[int, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def come(self, count: int) -> None:
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._request(len(self.tasks))))

    async def _request(self, number: int) -> None:
        self.ends[number] = asyncio.Event()
        known = self.table.find("vision", "e")
        assert known is not None
        found = await await_capacity(self.table, self.balancer, known, "main")
        assert found is not None
        target = self.balancer.choose("u1", found.targets["main"], set())
        assert target is not None
        with self.balancer.at("u1", target):
            self.at[number] = target.uid
            here = list(self.at.values()).count(target.uid)
            self.most[target.uid] = max(self.most.get(target.uid, 0), here)
            await self.ends[number].wait()
            del self.at[number]

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not met():  # noqa: ASYNC110 - turns of the loop, no time passes
                await asyncio.sleep(0)

    async def end(self) -> None:
        while not all(task.done() for task in self.tasks):
            for event in self.ends.values():
                event.set()
            await asyncio.sleep(0)
        await asyncio.gather(*self.tasks)


async def test_a_burst_is_given_to_the_servers_that_come() -> None:
    burst = Burst(endpoint(1, "r1"))
    burst.come(6)
    await burst.until(lambda: burst.balancer.held("u1") == 5)
    assert burst.at == {0: "r1"}
    burst.table.put(endpoint(2, "r1", starting=2))
    burst.table.put(endpoint(3, "r1", "r2", starting=1))
    await burst.until(lambda: len(burst.at) == 2)
    # In the order in which they came, and a new one takes no turn of those that wait.
    assert burst.at[1] == "r2"
    burst.come(1)
    burst.ends[0].set()
    await burst.until(lambda: 2 in burst.at)
    assert 6 not in burst.at
    assert burst.most == {"r1": 1, "r2": 1}
    await burst.end()


async def test_where_no_more_may_come_requests_go_to_the_least_busy() -> None:
    burst = Burst(endpoint(1, "r1", most=1))
    burst.come(4)
    await burst.until(lambda: len(burst.at) == 4)
    await burst.end()
    full = Burst(endpoint(1, "r1", "r2", "r3"))
    full.come(6)
    await full.until(lambda: len(full.at) == 6)
    assert full.most == {"r1": 2, "r2": 2, "r3": 2}
    await full.end()


async def test_where_none_comes_they_wait_no_longer_than_it_takes_to_be_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(balancing, "REACTION_SECONDS", 0.0)
    monkeypatch.setattr(balancing, "LOOK_SECONDS", 0.001)
    burst = Burst(endpoint(1, "r1"))
    burst.come(3)
    await burst.until(lambda: len(burst.at) == 3)
    await burst.end()


async def test_whoever_leaves_gives_up_the_turn() -> None:
    burst = Burst(endpoint(1, "r1"))
    burst.come(3)
    await burst.until(lambda: burst.balancer.held("u1") == 2)
    burst.tasks[1].cancel()
    await burst.until(lambda: burst.balancer.held("u1") == 1)
    burst.ends[0].set()
    await burst.until(lambda: burst.at == {2: "r1"})
    burst.tasks.pop(1)
    await burst.end()


def test_what_is_no_endpoint_has_nothing_to_wait_for() -> None:
    told: dict[str, Any] = {
        "name": "e",
        "project": "vision",
        "uid": "u1",
        "spec": {"kind": "workspace", "user": "ada", "routes": [{}]},
        "status": {
            "phase": "running",
            "tasks": [{"index": 0, "attempt": 0, "node": "a", "ports": {"main": 1}}],
        },
    }
    found = routed_workload(msgspec.convert(told, Workload), HERE)
    assert found is not None
    assert (found.max_servers, found.scaling_up) == (0, False)
