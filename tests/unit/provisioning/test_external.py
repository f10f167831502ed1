"""Nodes for pods that others made: one request for a gang, and a condition that says so."""

from pathlib import Path
from typing import Any

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    ExternalPodSeen,
    PodOrders,
)
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import ExternalPod, PodRef
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole, Grouping
from unit.external_pods.world import grouping, pod, seen_as
from unit.provisioning.scaling import ScalingHarness, node, scaling


def seen(name: str, group: Grouping, gpus: int = 1) -> ExternalPod:
    return ExternalPod(PodRef("theirs", name, f"uid-{name}"), group, pod(name, gpus))


class Told:
    """What pods were told, and which were bound."""

    def __init__(self, harness: ScalingHarness) -> None:
        self.reports: dict[str, tuple[str, str]] = {}
        self.bound: set[str] = set()
        harness.pods.current.execute = self._take

    def _take(self, orders: PodOrders) -> None:
        self.bound |= {one.pod.name for one in orders.binds}
        for one in orders.pending_reports:
            self.reports[one.pod.name] = one.token, one.message


async def gang(harness: ScalingHarness, size: int = 2) -> list[ExternalPod]:
    group = grouping("g", "vision", roles=(GangRole("", size),))
    pods = [seen(f"p{number}", group, gpus=2) for number in range(size)]
    await harness.hear(*map(ExternalPodSeen, pods))
    await harness.wait(2.0)
    return pods


async def test_a_gang_is_one_request_where_its_pods_are(empty_ledger: Path, tmp_path: Path) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        told = Told(harness)
        await harness.project("vision", 8)
        await gang(harness)
        [order] = harness.asked
        assert (order.namespace, [one.count for one in order.sets]) == ("theirs", [2])
        await harness.answer("Accepted", "two of pool a")  # told at once
        for name in ("p0", "p1"):
            token, message = told.reports[name]
            assert token == "WaitsForNodes"
            assert "Waiting for nodes: the cluster's autoscaler looks for them" in message
            assert "two of pool a" in message
        await harness.hear(node("new", 4))
        assert told.bound == {"p0", "p1"}
        await harness.wait(2.0)
        assert harness.requests == {}


async def test_a_gang_that_ends_waits_for_no_nodes(empty_ledger: Path, tmp_path: Path) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        Told(harness)
        await harness.project("vision", 8)
        pods = await gang(harness)
        assert len(harness.requests) == 1
        ended: list[Any] = [ExternalPodSeen(seen_as(one, outcome=Outcome.FAILED)) for one in pods]
        await harness.hear(*ended)
        await harness.wait(2.0)
        assert harness.requests == {}


async def test_pods_beyond_quota_are_told_that_no_nodes_are_asked_for(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with scaling(empty_ledger, tmp_path) as harness:
        told = Told(harness)
        await harness.project("vision", 3)
        await gang(harness)
        assert harness.asked == []
        token, message = told.reports["p0"]
        assert token == "NeverFits"
        assert "No nodes are asked for: with it `vision` would come to 4 GPUs" in message
