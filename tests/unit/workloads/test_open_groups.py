"""Work that asks for a group of nodes: refused where that could never be, else placed there."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    NodeGroupSeen,
    NodeSeen,
    Ready,
)
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup
from carrel_scheduler.policy.admission import NotAdmitted, admit
from carrel_scheduler.workloads.reconcile.live import LiveView
from carrel_schema.names import NODE_GROUP
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from unit.workloads.desk import Desk


def node(name: str, gpus: int, **labels: str) -> NodeSeen:
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "256Gi"}
    told = {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return NodeSeen(msgspec.convert(told, Node))


def group(name: str, **spec: Any) -> NodeGroupSeen:
    told = {"metadata": {"name": name}, "spec": {"matchLabels": {"pool": name}, **spec}}
    return NodeGroupSeen(msgspec.convert(told, NodeGroup))


@pytest.fixture
async def cluster(desk: Desk) -> Desk:
    """Nodes in a group of a resource, in one that a label names, in one of others, in none."""
    news = (
        group("a100"),
        group("theirs", projects=["speech"]),
        node("fast", 4, pool="a100"),
        node("old", 2, **{NODE_GROUP: "v100"}),
        node("other", 8, pool="theirs"),
        Ready(),
    )
    desk.loop.enqueue(ExternalEvents(news))
    await desk.settle()
    await desk.project("vision", 8)
    return desk


def asks(node_group: str, gpus: int = 1, kind: Any = "training") -> Workload:
    resources = Resources(gpu_milli=gpus * 1000)
    spec = WorkloadSpec(kind=kind, user="ada", resources=resources, node_group=node_group)
    return Workload(meta=Meta(name="job", project="vision", uid="u"), spec=spec)


@pytest.mark.parametrize(
    ("workload", "code", "field", "expected"),
    [
        (asks("h100"), "unknown_node_group", "node_group", "one of `a100`, `v100`, or left out"),
        (asks("theirs"), "node_group_not_open", "node_group", "one of `a100`, `v100`, or left out"),
        (asks("v100", 4), "never_fits", "gpus", "Ask for 2 GPUs or less."),
        (asks("", 8), "never_fits", "gpus", "Ask for 4 GPUs or less."),
    ],
)
async def test_what_no_node_of_a_group_could_ever_hold_is_refused(
    cluster: Desk, workload: Workload, code: str, field: str, expected: str
) -> None:
    with pytest.raises(NotAdmitted) as refused:
        admit(workload, LiveView(cluster.loop))
    assert (refused.value.code, refused.value.field) == (code, field)
    assert refused.value.expected == expected


async def test_one_machine_has_no_groups(desk: Desk) -> None:
    await desk.project("vision", 8)
    with pytest.raises(NotAdmitted, match="left out: there are none") as refused:
        admit(asks("a100"), LiveView(desk.loop))
    assert refused.value.code == "unknown_node_group"


async def test_work_runs_in_its_group_only_a_gang_too(cluster: Desk) -> None:
    admit(asks("v100", 2), LiveView(cluster.loop))
    first = await cluster.submit("vision", "old-one", gpus=2, node_group="v100")
    second = await cluster.submit("vision", "waits", gpus=2, node_group="v100")
    pair = await cluster.submit(
        "vision", "pair", gpus=1, kind="distributed", tasks=2, node_group="a100"
    )
    assert await cluster.phases(first, second, pair) == ["starting", "pending", "starting"]
    assert {task.node for task in (await cluster.stored(first)).status.tasks} == {"old"}
    assert {task.node for task in (await cluster.stored(pair)).status.tasks} == {"fast"}
