"""Events about MIG instances: of nodes and pods, as those expect them who describe an object."""

import asyncio
from typing import Any

import pytest

from carrel_scheduler.engines.contract import NotOnThisNode
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta
from carrel_scheduler.engines.kubernetes.shared_gpus.events import (
    FAILED,
    MADE,
    MOST_WAITING,
    PER_SECOND,
    REMOVED,
    EventWriter,
    Notice,
)
from carrel_scheduler.engines.kubernetes.shared_gpus.instances import MigInstances
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import HeldGpu
from carrel_scheduler.kube.errors import AlreadyExists, Forbidden
from carrel_scheduler.node.contract import MigReport, MigResult
from unit.shared_gpus.virtual_loop import in_virtual_time

GPU = HeldGpu("r1", "GPU-a", 81_559)
POD = ObjectMeta(name="work", namespace="carrel-vision", uid="u1")


async def told(result: dict[str, Any] | None) -> list[Notice]:
    """What is told when an agent answers so; ``None``: nobody asks."""
    heard: list[Notice] = []
    instances = MigInstances(lambda _: (), heard.append)
    taking = asyncio.create_task(instances.take("n1", GPU, "7g.80gb", 255, POD))
    if result is not None:
        [order] = (await instances.exchange("n1", MigReport())).orders
        done = MigReport(results=(MigResult(id=order.id, **result),))
        answering = asyncio.create_task(instances.exchange("n1", done))
        await asyncio.wait([taking])
        answering.cancel()
    if result is None or "uuid" not in result:
        with pytest.raises(NotOnThisNode):
            await taking
    else:
        assert await taking == result["uuid"]
    return heard


def test_a_node_says_what_was_made_and_removed_on_it_and_for_whom_not() -> None:
    async def story() -> None:
        heard = await told({"uuid": "MIG-1", "made": True, "removed": ("1g.10gb", "3g.40gb")})
        assert [(one.regarding["kind"], one.token) for one in heard] == [
            ("Node", REMOVED),
            ("Node", REMOVED),
            ("Node", MADE),
        ]
        text = " ".join(one.message for one in heard)
        assert "1g.10gb of GPU GPU-a was removed for 7g.80gb" in text
        assert "work" not in text
        assert await told({"uuid": "MIG-1"}) == [], "one that was there is no event"

    in_virtual_time(story)


@pytest.mark.parametrize("result", [{"error": "the driver refuses", "removed": ("1g.10gb",)}, None])
def test_a_refusal_is_an_event_of_the_node_and_of_the_pod(result: dict[str, Any] | None) -> None:
    async def story() -> None:
        heard = await told(result)
        failures = [one for one in heard if one.token == FAILED]
        node, pod = failures
        why = "the driver refuses" if result else "no agent"
        assert why in node.message
        assert why in pod.message
        assert node.regarding == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
        assert (pod.regarding["name"], pod.regarding["uid"]) == ("work", "u1")
        assert len(heard) == (3 if result else 2), "what was removed before is told, too"

    in_virtual_time(story)


class Server:
    """Takes events; ``refusals`` come first."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.created: list[tuple[float, dict[str, Any], str]] = []
        self.again: list[str] = []

    async def create(self, _: Any, body: dict[str, Any], namespace: str) -> None:
        self.created.append((asyncio.get_running_loop().time(), body, namespace))
        if self.refusals:
            raise self.refusals.pop(0)

    async def patch(self, _: Any, name: str, *__: Any, **___: Any) -> None:
        self.again.append(name)


def test_they_are_written_one_after_the_other_whatever_comes() -> None:
    async def story() -> None:
        there, no = AlreadyExists(409, "AlreadyExists", ""), Forbidden(403, "Forbidden", "no")
        server = Server(no, there)
        client: Any = server
        writer = EventWriter(client, lambda: 0.0, "one")
        working = asyncio.create_task(writer.run())
        heard = await told({"error": "no"})
        for _ in range(10):
            for notice in heard:
                writer.publish(notice)
        await asyncio.sleep(60.0)
        assert len(server.created) == 2, "one that waits is not repeated"
        (_, node, space), (_, pod, beside) = server.created
        assert (node["reason"], node["type"], space) == (FAILED, "Warning", "default")
        assert (pod["regarding"]["kind"], beside) == ("Pod", "carrel-vision")
        assert server.again == [pod["metadata"]["name"]]
        before = len(server.created)
        for number in range(3 * MOST_WAITING):
            result = {"uuid": "MIG-1", "made": True, "removed": (f"{number}g.1gb",)}
            for notice in await told(result):
                writer.publish(notice)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1.0)
        assert len(server.created) - before <= PER_SECOND + 1
        await asyncio.sleep(10 * MOST_WAITING)
        assert len(server.created) - before <= MOST_WAITING + 1, "what is too much is left out"
        assert all(body["type"] == "Normal" for at, body, _ in server.created if at >= began)
        working.cancel()

    in_virtual_time(story)
