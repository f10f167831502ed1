"""Work that asks for a group of nodes: refused where that could never be, else placed there."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    NodeGroupSeen,
    NodeSeen,
)
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup
from carrel_scheduler.engines.node_group_store import LedgerNodeGroups
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.policy.inherited_rules import node_groups
from carrel_scheduler.workloads.admission import NotAdmitted, admit
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import ProjectChanged
from carrel_schema.groups import NodeGroupSpec
from carrel_schema.names import NODE_GROUP
from carrel_schema.objects import (
    DepartmentSpec,
    Meta,
    NodeGroupLists,
    ProjectSpec,
    Resources,
    Workload,
    WorkloadSpec,
)
from unit.workloads.conftest import opened
from unit.workloads.harness import MachineHarness, SchedulerHarness


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
async def cluster(harness: SchedulerHarness) -> SchedulerHarness:
    """Nodes in a group of a resource, in one that a label names, in one of others, in none."""
    news = (
        group("a100"),
        group("theirs", projects=["speech"]),
        node("fast", 4, pool="a100"),
        node("old", 2, **{NODE_GROUP: "v100"}),
        node("other", 8, pool="theirs"),
        AllReconciled(),
    )
    harness.loop.enqueue(ExternalEvents(news))
    await harness.settle()
    await harness.project("vision", 8)
    return harness


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
    cluster: SchedulerHarness, workload: Workload, code: str, field: str, expected: str
) -> None:
    with pytest.raises(NotAdmitted) as refused:
        admit(workload, LiveState(cluster.loop))
    assert (refused.value.code, refused.value.field) == (code, field)
    assert refused.value.expected == expected


async def test_the_group_of_one_machine_is_called_after_its_gpus(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with opened(empty_ledger, tmp_path, 4, MachineHarness) as harness:
        await harness.recover()
        await harness.project("vision", 8, node_groups=NodeGroupLists(training=["h100"]))
        await harness.project("speech", 8, node_groups=NodeGroupLists(training=["a10"]))
        assert await harness.phase(await harness.submit("vision", "elsewhere")) == "pending"
        assert (
            await harness.phase(await harness.submit("speech", "here", node_group="a10"))
            == "starting"
        )
        with pytest.raises(NotAdmitted, match="left out: no group of nodes is open to it"):
            admit(asks("a10"), LiveState(harness.loop))


async def test_a_group_that_selects_the_machine_holds_at_once_and_after_it_is_gone(
    empty_ledger: Path, tmp_path: Path
) -> None:
    async with opened(empty_ledger, tmp_path, 4, MachineHarness) as harness:
        await harness.recover()
        await harness.project("vision", 8)
        await harness.project("speech", 8, department="arts")
        here = LiveState(harness.loop).nodes()[0].name
        groups = LedgerNodeGroups(harness.loop.ledger.scoped, harness.loop.enqueue)
        wanted = NodeGroupSpec(node_names=(here,), departments=("arts",), role="training")
        await groups.create("night", wanted, "root")
        await harness.settle()
        assert LiveState(harness.loop).nodes()[0].group == "night"
        theirs = await harness.submit("speech", "theirs", node_group="night")
        assert await harness.phase(theirs) == "starting"
        waits = await harness.submit("vision", "waits")
        assert await harness.phase(waits) == "pending"
        with pytest.raises(NotAdmitted, match="left out: no group of nodes is open to it"):
            admit(asks("night"), LiveState(harness.loop))
        model = NodeGroupSpec(match_labels={"nvidia.com/gpu.product": "other"}, projects=("x",))
        await groups.replace("night", model, "root")
        await harness.settle()
        assert LiveState(harness.loop).nodes()[0].group == "a10"
        assert await harness.phase(waits) == "starting"
        await groups.delete("night")
        await harness.settle()
        assert await groups.all() == []
        assert harness.loop.external_pods.node_groups() == {"a10"}


async def test_a_group_is_made_of_nodes_by_name_and_kept_for_a_department(
    cluster: SchedulerHarness,
) -> None:
    cluster.loop.enqueue(
        ExternalEvents((node("bare", 8), group("aa", nodeNames=["bare"], departments=["arts"])))
    )
    await cluster.project("speech", 8, department="arts")
    theirs = await cluster.submit("speech", "theirs", gpus=8, node_group="aa")
    ours = await cluster.submit("vision", "ours", gpus=1)
    assert await cluster.phases(theirs, ours) == ["starting", "starting"]
    assert {task.node for task in (await cluster.stored(theirs)).status.tasks} == {"bare"}
    assert {task.node for task in (await cluster.stored(ours)).status.tasks} != {"bare"}
    with pytest.raises(NotAdmitted) as refused:
        admit(asks("aa"), LiveState(cluster.loop))
    assert refused.value.code == "node_group_not_open"


async def test_work_runs_in_its_group_only_a_gang_too(cluster: SchedulerHarness) -> None:
    admit(asks("v100", 2), LiveState(cluster.loop))
    first = await cluster.submit("vision", "old-one", gpus=2, node_group="v100")
    second = await cluster.submit("vision", "waits", gpus=2, node_group="v100")
    pair = await cluster.submit(
        "vision", "pair", gpus=1, kind="distributed", tasks=2, node_group="a100"
    )
    assert await cluster.phases(first, second, pair) == ["starting", "pending", "starting"]
    assert {task.node for task in (await cluster.stored(first)).status.tasks} == {"old"}
    assert {task.node for task in (await cluster.stored(pair)).status.tasks} == {"fast"}


async def test_a_project_keeps_its_work_to_groups_by_what_runs_there(
    cluster: SchedulerHarness,
) -> None:
    """Nodes in no group, and in others, are never used."""
    cluster.loop.enqueue(ExternalEvents((node("free", 8),)))
    kept = NodeGroupLists(training=["v100"], interactive=["a100"])
    await cluster.project("speech", 8, node_groups=kept)
    jobs = [await cluster.submit("speech", f"job{n}", gpus=2) for n in range(2)]
    workspace = await cluster.submit(
        "speech", "desk", kind="workspace", command=[], hold_for_claim=True
    )
    assert await cluster.phases(*jobs, workspace) == ["starting", "pending", "starting"]
    assert {task.node for task in (await cluster.stored(jobs[0])).status.tasks} == {"old"}
    assert {task.node for task in (await cluster.stored(workspace)).status.tasks} == {"fast"}
    wrong = asks("a100")
    wrong.meta.project = "speech"
    with pytest.raises(NotAdmitted, match="one of `v100`, or left out"):
        admit(wrong, LiveState(cluster.loop))


async def test_what_waits_follows_a_project_that_is_kept_to_another_group(
    cluster: SchedulerHarness,
) -> None:
    made = await cluster.project("speech", 8, node_groups=NodeGroupLists(training=["v100"]))
    first, waits = [await cluster.submit("speech", f"job{n}", gpus=2) for n in range(2)]
    assert await cluster.phases(first, waits) == ["starting", "pending"]
    made.spec = msgspec.structs.replace(made.spec, node_groups=NodeGroupLists(training=["a100"]))
    cluster.loop.enqueue(ProjectChanged(Change(ChangeType.MODIFIED, 99, made)))
    await cluster.settle()
    assert {task.node for task in (await cluster.stored(waits)).status.tasks} == {"fast"}


@pytest.mark.parametrize(
    ("own", "above", "kept"),
    [
        (["a"], [], ["a"]),
        ([], ["a", "b"], ["a", "b"]),
        (["b", "c"], ["a", "b"], ["b"]),
        (["c"], ["a", "b"], ["a", "b"]),
    ],
)
def test_a_project_narrows_what_its_department_allows(
    own: list[str], above: list[str], kept: list[str]
) -> None:
    project = ProjectSpec(node_groups=NodeGroupLists(training=own))
    department = DepartmentSpec(node_groups=NodeGroupLists(training=above))
    assert node_groups(project, department).training == kept
    assert node_groups(project, department).interactive == []
