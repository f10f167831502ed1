"""Orders for MIG instances between a scheduler and the agents of nodes, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from carrel_scheduler.engines.contract import NotOnThisNode
from carrel_scheduler.engines.kubernetes.binding import BindTarget, bind
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.instances import MigInstances
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import (
    HeldGpu,
    instance_annotations,
)
from carrel_scheduler.kube.resources import PODS
from carrel_scheduler.node.contract import MigOrder, MigOrders, MigReport, MigResult
from unit.shared_gpus.pod_server import PodServer
from unit.shared_gpus.sharing import PROJECT, Scheduler, _body
from unit.shared_gpus.virtual_loop import in_virtual_time

GPU = HeldGpu("r1", "GPU-a", 81_559)


class Agent:
    """Asks until it is killed, and does what it is told in a second."""

    def __init__(self, instances: MigInstances, made: dict[tuple[str, int], str]) -> None:
        self.instances, self.made = instances, made
        self.carried_out: list[MigOrder] = []
        self.has_done = asyncio.Event()
        self.asking = asyncio.create_task(self._run())

    async def _run(self) -> None:
        report = MigReport()
        while True:
            told: MigOrders = await self.instances.exchange("n1", report)
            report = MigReport(results=tuple([await self._do(one) for one in told.orders]))

    async def _do(self, order: MigOrder) -> MigResult:
        await asyncio.sleep(1.0)
        if order.profile == "9g.10gb":
            return MigResult(id=order.id, error="no such profile")
        place = order.profile, order.slots
        uuid = self.made.setdefault(place, f"MIG-{len(self.made)}")
        self.carried_out.append(order)
        self.has_done.set()
        await asyncio.sleep(0.1)
        return MigResult(id=order.id, uuid=uuid)


def play(story: Callable[[], Awaitable[None]]) -> None:
    in_virtual_time(story)


def test_an_order_is_answered_as_soon_as_it_is_done() -> None:
    async def story() -> None:
        loop, instances = asyncio.get_running_loop(), MigInstances(lambda _: {"MIG-9"})
        agent = Agent(instances, {})
        await asyncio.sleep(3.0)
        both = await asyncio.gather(
            instances.take("n1", GPU, "1g.10gb", 1), instances.take("n1", GPU, "1g.10gb", 2)
        )
        assert len(set(both)) == 2
        assert loop.time() <= 6.0
        assert {one.held for one in agent.carried_out} == {("MIG-9",)}
        with pytest.raises(NotOnThisNode, match="node n1: no such profile"):
            await instances.take("n1", GPU, "9g.10gb", 4)
        agent.asking.cancel()

    play(story)


def test_an_agent_that_ended_before_it_told_is_told_again_and_finds_what_it_made() -> None:
    async def story() -> None:
        instances = MigInstances(lambda _: ())
        made: dict[tuple[str, int], str] = {}
        first = Agent(instances, made)
        taking = asyncio.create_task(instances.take("n1", GPU, "3g.40gb", 15))
        await first.has_done.wait()
        first.asking.cancel()
        assert not taking.done()
        second = Agent(instances, made)
        assert await taking == "MIG-0"
        assert len(second.carried_out) == 1
        second.asking.cancel()

    play(story)


def test_a_scheduler_that_starts_again_gets_the_same_instance_and_old_results_harm_nothing() -> (
    None
):
    async def story() -> None:
        made: dict[tuple[str, int], str] = {}
        before = MigInstances(lambda _: ())
        agent = Agent(before, made)
        first = await before.take("n1", GPU, "3g.40gb", 15)
        agent.instances = after = MigInstances(lambda _: ())
        old = MigResult(id="r1-1-old", uuid="MIG-wrong")
        await after.exchange("n1", MigReport(results=(old,)))
        assert await after.take("n1", GPU, "3g.40gb", 15) == first
        agent.asking.cancel()

    play(story)


@pytest.mark.parametrize(
    ("asked_at", "word"), [(None, "no agent"), (0.0, "last heard of"), (85.0, "not done it yet")]
)
def test_a_start_does_not_wait_without_end(asked_at: float | None, word: str) -> None:
    async def story() -> None:
        instances = MigInstances(lambda _: ())
        taking = asyncio.create_task(instances.take("n1", GPU, "3g.40gb", 15))
        if asked_at is not None:
            await asyncio.sleep(asked_at)
            assert (await instances.exchange("n1", MigReport())).orders
        with pytest.raises(NotOnThisNode, match=word):
            await taking
        assert (await instances.exchange("n1", MigReport())).orders == (), "nobody waits for it"

    play(story)


def test_a_start_that_is_given_up_leaves_no_order() -> None:
    async def story() -> None:
        loop, instances = asyncio.get_running_loop(), MigInstances(lambda _: ())
        taking = asyncio.create_task(instances.take("n1", GPU, "3g.40gb", 15))
        await asyncio.sleep(1.0)
        taking.cancel()
        await asyncio.sleep(0.0)
        assert (await instances.exchange("n1", MigReport())).orders == ()
        assert loop.time() == 11.0, "an agent is kept waiting, which costs nothing"
        assert (await instances.exchange("other", MigReport())).orders == ()

    play(story)


def test_what_a_pod_was_given_is_in_use_from_its_binding_to_its_end_for_every_scheduler() -> None:
    async def story() -> None:
        server = PodServer({"n1": ["GPU-a"]}, Random(0))
        scheduler = Scheduler(server, 1, 1)
        client: Any = server
        made = await client.create(PODS, _body("work", 1, 500), PROJECT, Pod)
        async with scheduler.gpus.hold("n1", (0,)) as hold:
            assert hold.visible == ("GPU-a",)
            hold.visible = ("MIG-1",)
            told = instance_annotations(hold.gpus[0], "MIG-1")
            target = BindTarget(PROJECT, "work", made.metadata.uid, "n1", (0,), gpus=told)
            await bind(client, target, 1)
            hold.pod = made.metadata
        assert scheduler.gpus.in_use("n1") == {"MIG-1"}, "before any watch shows it"
        assert scheduler.gpus.in_use("n2") == frozenset()
        await asyncio.sleep(60.0)
        server.epoch = 2
        successor = Scheduler(server, 2, 1)
        await successor.gpus.open()
        assert successor.gpus.in_use("n1") == scheduler.gpus.in_use("n1") == {"MIG-1"}
        server.remove(server.pods[PROJECT, "work"])
        await asyncio.sleep(60.0)
        assert successor.gpus.in_use("n1") == frozenset()
        assert not server.pods, "the reservation ends with its last user"
        for one in (scheduler, successor):
            await one.close()
        server.close()

    play(story)
