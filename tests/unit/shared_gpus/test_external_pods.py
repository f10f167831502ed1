"""Other people's pods with a share of a GPU: bound with the GPU that is held for them."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.executor import ExecutorLimits, PodExecutor
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    Bind,
    BindingFailed,
    PodOrders,
)
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import PodRef
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.instances import MigInstances
from carrel_scheduler.kube.resources import PODS
from carrel_scheduler.node.contract import MigReport, MigResult
from carrel_schema.names import GPU_UUIDS, MIG_SLOTS, RESERVATIONS_NAMESPACE
from unit.shared_gpus.pod_server import GPU, PodServer
from unit.shared_gpus.sharing import PROJECT, Scheduler
from unit.shared_gpus.virtual_loop import in_virtual_time

PODS_HERE = ("first", "second", "two-of-them", "whole")


class Bench:
    """The executor of external pods over the stand-in server."""

    def __init__(self, *uuids: str, silent: bool = False) -> None:
        self.server = PodServer({"n1": list(uuids)}, Random(0), silent=silent)
        self.scheduler = Scheduler(self.server, 1, len(uuids))
        self.heard: list[ExternalEvents] = []
        self.instances = MigInstances(self.scheduler.gpus.in_use)
        client: Any = self.server
        nobody: Any = None
        self.execute = PodExecutor(
            client,
            nobody,
            self.heard.append,
            now=lambda: 0.0,
            instance="one",
            limits=ExecutorLimits(bindings=1),
            gpus=self.scheduler.gpus,
            instances=self.instances,
        )
        self.execute.epoch = 1

    async def bind(self, name: str, devices: tuple[int, ...], **annotations: str) -> None:
        """Order a binding, and wait for what becomes of it."""
        done = self.execute.counts.bound + self.execute.counts.failed
        await self.order(name, devices, "", 0, **annotations)
        while self.execute.counts.bound + self.execute.counts.failed == done:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def order(
        self, name: str, devices: tuple[int, ...], profile: str = "", slots: int = 0, **notes: str
    ) -> None:
        """Order a binding; ``notes`` are the pod's annotations."""
        limits = {} if notes else {GPU: str(len(devices))}
        body = {
            "metadata": {"name": name, "annotations": notes},
            "spec": {
                "schedulerName": "carrel",
                "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "main", "resources": {"limits": limits}}],
            },
        }
        client: Any = self.server
        pod = await client.create(PODS, body, PROJECT, Pod)
        ref = PodRef(PROJECT, name, pod.metadata.uid)
        order = Bind(ref, "n1", devices, pod, mig_profile=profile, slots=slots)
        self.execute(PodOrders(binds=[order]))

    def notes(self, name: str) -> dict[str, str]:
        return dict(self.server.pods[PROJECT, name]["metadata"]["annotations"])

    async def run(self, story: Callable[["Bench"], Any]) -> None:
        working = asyncio.create_task(self.execute.run())
        await story(self)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await self.scheduler.close()
        self.server.close()


async def _share(bench: Bench) -> None:
    await bench.bind("first", (0,), **{"gpu-fraction": "0.5"})
    await bench.bind("second", (0,), **{"gpu-memory": "2048"})
    first, second = bench.notes("first"), bench.notes("second")
    assert first["carrel.dev/gpu-uuids"] == second["carrel.dev/gpu-uuids"]
    assert first["carrel.dev/gpu-memory-mib"] == "8192", "half of what the GPU says it has"
    assert second["carrel.dev/gpu-memory-mib"] == "2048"
    both = {"carrel.dev/gpu-share": "0.25", "carrel.dev/gpu-devices": "2"}
    await bench.bind("two-of-them", (0, 1), **both)
    assert len(bench.notes("two-of-them")["carrel.dev/gpu-uuids"].split(",")) == 2
    await bench.bind("whole", (2,))
    assert "carrel.dev/gpu-uuids" not in bench.notes("whole")
    assert bench.execute.counts.bound == len(PODS_HERE)
    held = [key for key in bench.server.pods if key[0] == RESERVATIONS_NAMESPACE]
    assert len(held) == 2


async def _no_gpu_there(bench: Bench) -> None:
    await bench.bind("first", (0,), **{"gpu-fraction": "0.5"})
    assert bench.execute.counts.bound == 0
    [news] = [one for told in bench.heard for one in told.events]
    assert isinstance(news, BindingFailed)
    assert not news.final, "it is decided on again"
    assert "did not take the pod that holds a GPU" in news.text


async def _slow_node(bench: Bench) -> None:
    await bench.order("first", (0,), "", 0, **{"gpu-fraction": "0.5"})
    await asyncio.sleep(1.0)
    await bench.bind("plain", ())
    assert bench.execute.counts.bound == 1
    await bench.bind("other", (), note="no share")
    assert (bench.execute.counts.bound, bench.execute.counts.failed) == (2, 0)
    await asyncio.sleep(60.0)
    assert bench.execute.counts.failed == 1, "it is given up in time"


async def _instance(bench: Bench) -> None:
    await bench.order("first", (0,), "3g.40gb", 0b1111, note="an instance")
    wanted = (await bench.instances.exchange("n1", MigReport())).orders
    [order] = wanted
    assert (order.profile, order.slots, order.device) == ("3g.40gb", 0b1111, "GPU-a")
    made = MigResult(id=order.id, uuid="MIG-one")
    answering = asyncio.create_task(bench.instances.exchange("n1", MigReport(results=(made,))))
    while not bench.execute.counts.bound:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    notes = bench.notes("first")
    assert (notes[GPU_UUIDS], notes[MIG_SLOTS]) == ("MIG-one", "15")
    await answering
    assert bench.scheduler.gpus.in_use("n1") == {"MIG-one"}

    await bench.order("second", (0,), "4g.40gb", 0b1111, note="an instance")
    [order] = (await bench.instances.exchange("n1", MigReport())).orders
    assert order.held == ("MIG-one",), "nobody touches the one of the first pod"
    refused = MigResult(id=order.id, error="the driver refuses")
    answering = asyncio.create_task(bench.instances.exchange("n1", MigReport(results=(refused,))))
    while not bench.execute.counts.failed:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    [news] = [one for told in bench.heard for one in told.events]
    assert isinstance(news, BindingFailed)
    assert (news.final, "the driver refuses" in news.text) == (False, True)
    await answering

    bench.server.succeed(bench.server.pods[PROJECT, "first"])
    while any(key[0] == RESERVATIONS_NAMESPACE for key in bench.server.pods):  # noqa: ASYNC110
        await asyncio.sleep(1.0)
    assert bench.scheduler.gpus.in_use("n1") == frozenset()


def test_a_mig_instance_is_made_before_the_pod_is_bound_and_given_back_with_it() -> None:
    in_virtual_time(lambda: Bench("GPU-a").run(_instance))


def test_a_node_that_gives_no_gpu_holds_up_no_other_pod() -> None:
    in_virtual_time(lambda: Bench("GPU-a", silent=True).run(_slow_node))


def test_they_are_told_which_gpu_they_share_and_how_much_of_it() -> None:
    in_virtual_time(lambda: Bench("GPU-a", "GPU-b", "GPU-c").run(_share))


def test_a_gpu_that_cannot_be_held_is_no_end_of_the_pod() -> None:
    in_virtual_time(lambda: Bench().run(_no_gpu_there))
