"""Types of GPUs, levels of a topology and rules of projects, from what is asked for to the core."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.settings import DEFAULTS
from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    NodeSeen,
    TopologyDeleted,
    TopologySeen,
)
from carrel_scheduler.engines.kubernetes.pods.types import Topology
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.admission import NotAdmitted, admit
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DepartmentChanged, ProjectChanged
from carrel_schema.objects import (
    Department,
    DepartmentSpec,
    Meta,
    Resources,
    Workload,
    WorkloadSpec,
)
from unit.workloads.harness import SchedulerHarness
from unit.workloads.test_open_groups import node

A100, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"
RACK = "example.com/rack"
ANYWAY = "a task with several GPUs gets those that are connected best anyway"


def gpus_of(name: str, model: str, *, rack: str = "") -> NodeSeen:
    seen = node(name, 2, **{"nvidia.com/gpu.product": model}, **({RACK: rack} if rack else {}))
    return NodeSeen(msgspec.structs.replace(seen.node))


async def told(harness: SchedulerHarness, *news: Any) -> None:
    harness.loop.enqueue(ExternalEvents((*news, AllReconciled())))
    await harness.settle()


@pytest.fixture
async def cluster(harness: SchedulerHarness) -> SchedulerHarness:
    await told(
        harness,
        gpus_of("n1", H100, rack="r1"),
        gpus_of("n2", A100, rack="r2"),
        gpus_of("n3", A100, rack="r2"),
        TopologySeen(
            msgspec.convert(
                {"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": RACK}]}}, Topology
            )
        ),
    )
    await harness.project("vision", 8)
    return harness


async def nodes(harness: SchedulerHarness, uid: str) -> set[str]:
    return {task.node for task in (await harness.stored(uid)).status.tasks}


def asks(**fields: Any) -> Workload:
    spec = WorkloadSpec(user="ada", resources=Resources(gpu_milli=1000), **fields)
    return Workload(meta=Meta(name="job", project="vision", uid="u"), spec=spec)


async def test_gpu_types_are_taken_in_the_order_in_which_they_are_named(
    cluster: SchedulerHarness,
) -> None:
    placed = [
        await cluster.submit("vision", f"j{n}", gpus=2, gpu_types=["H100", "a100-80gb"])
        for n in range(3)
    ]
    assert [await nodes(cluster, uid) for uid in placed] == [{"n1"}, {"n2"}, {"n3"}]
    only = await cluster.submit("vision", "only", gpus=1, gpu_types=["h100"])
    assert await cluster.phase(only) == "pending"


async def test_work_moves_to_a_better_type_once_that_is_free(cluster: SchedulerHarness) -> None:
    asked: dict[str, Any] = {"gpus": 2, "gpu_types": ["H100", "A100"]}
    first = await cluster.submit("vision", "first", **asked)
    moving, staying = [
        await cluster.submit("vision", name, **asked, move_to_better_type=moves)
        for name, moves in (("moving", True), ("staying", False))
    ]
    await cluster.runs(first, moving, staying)
    [before] = cluster.tasks_of(moving)
    await cluster.ends(first)
    assert list(cluster.engine.stopping) == [before]
    await cluster.ends(moving, None, signal=15)
    assert await nodes(cluster, moving) == {"n1"}
    status = (await cluster.stored(moving)).status
    assert status.last_preemption is not None
    assert (status.failures, status.last_preemption.rule) == (0, "improve")
    await cluster.runs(moving)
    assert await cluster.phases(moving, staying) == ["running", "running"]
    assert await nodes(cluster, staying) != {"n1"}


async def test_a_type_that_comes_later_is_used_by_what_waits_for_it(
    cluster: SchedulerHarness,
) -> None:
    for n in range(3):
        await cluster.submit("vision", f"j{n}", gpus=2)
    waits = await cluster.submit("vision", "waits", gpus=2, gpu_types=["A100", "L40S"])
    assert await cluster.phase(waits) == "pending"
    await told(cluster, gpus_of("n4", "NVIDIA-L40S"))
    assert await nodes(cluster, waits) == {"n4"}


@pytest.mark.parametrize(
    ("fields", "code", "field", "expected"),
    [
        (
            {"gpu_types": ["A100", "V100"]},
            "unknown_gpu_type",
            "gpu_types.1",
            f"a model or a part of its name: `A10`, `{A100}`, `{H100}`",
        ),
        (
            {"topology_required": "rack"},
            "unknown_level",
            "topology_required",
            f"one of `{RACK}`, `node`, or left out",
        ),
        (
            {"topology_preferred": "nvlink"},
            "unknown_level",
            "topology_preferred",
            f"one of `{RACK}`, `node`, or left out: {ANYWAY}",
        ),
    ],
)
async def test_what_no_node_has_is_refused_with_what_there_is(
    cluster: SchedulerHarness, fields: dict[str, Any], code: str, field: str, expected: str
) -> None:
    with pytest.raises(NotAdmitted) as refused:
        admit(asks(**fields), LiveState(cluster.loop))
    assert (refused.value.code, refused.value.field) == (code, field)
    assert refused.value.expected == expected


async def test_a_gang_lies_in_one_domain_of_the_required_level(cluster: SchedulerHarness) -> None:
    """Packing alone would begin on n1, which has no neighbour in its rack."""
    pair = await cluster.submit(
        "vision", "pair", gpus=2, kind="distributed", tasks=2, topology_required=RACK
    )
    assert await nodes(cluster, pair) == {"n2", "n3"}
    with pytest.raises(NotAdmitted):
        admit(asks(kind="distributed", tasks=5, topology_required=RACK), LiveState(cluster.loop))


async def test_one_node_is_a_level_and_a_preferred_level_is_no_condition(
    cluster: SchedulerHarness,
) -> None:
    together = await cluster.submit(
        "vision", "together", gpus=1, kind="distributed", tasks=2, topology_required="node"
    )
    assert len(await nodes(cluster, together)) == 1
    apart = await cluster.submit(
        "vision", "apart", gpus=2, kind="distributed", tasks=2, topology_preferred="node"
    )
    assert len(await nodes(cluster, apart)) == 2


async def test_a_topology_that_is_deleted_has_no_levels(cluster: SchedulerHarness) -> None:
    await told(cluster, TopologyDeleted("racks"))
    with pytest.raises(NotAdmitted, match="one of `node`, or left out"):
        admit(asks(topology_required=RACK), LiveState(cluster.loop))


async def department(harness: SchedulerHarness, **rules: Any) -> None:
    made = Department(meta=Meta(name="sciences", uid="d1"), spec=DepartmentSpec(**rules))
    harness.loop.enqueue(DepartmentChanged(Change(ChangeType.MODIFIED, 1, made)))
    await harness.settle()


async def test_rules_come_from_the_project_its_department_or_the_cluster(
    harness: SchedulerHarness,
) -> None:
    await department(harness, preempt_min_runtime_seconds=600.0, reservation_delay_seconds=60.0)
    await harness.project("vision", 2, department="sciences", reservation_delay_seconds=30.0)
    rules = LiveState(harness.loop).project_use("vision")["vision"].rules
    said = {name: (rule.value, rule.origin) for name, rule in rules.items()}
    assert said == {
        "preempt_min_runtime_seconds": (600.0, "department"),
        "reclaim_min_runtime_seconds": (0.0, "cluster"),
        "preemption_delay_seconds": (0.0, "cluster"),
        "reservation_delay_seconds": (30.0, "project"),
        "placement": ("pack", "cluster"),
    }
    assert DEFAULTS.reservation_delay_s != 30.0


async def test_work_runs_for_the_minimum_of_its_department_before_others_reclaim_it(
    harness: SchedulerHarness,
) -> None:
    await department(harness, reclaim_min_runtime_seconds=600.0)
    await harness.project("vision", 0, department="sciences")
    await harness.project("speech", 4)
    borrowed = await harness.submit("vision", "borrows", gpus=4)
    await harness.runs(borrowed)
    await harness.submit("speech", "owner", gpus=4)
    await harness.wait(300)
    assert await harness.phase(borrowed) == "running"
    await harness.wait(400)
    assert await harness.phase(borrowed) == "preempting"


async def test_a_changed_delay_holds_for_what_waits_already(harness: SchedulerHarness) -> None:
    await harness.project("vision", 0)
    made = await harness.project("speech", 4, preemption_delay_seconds=10_000.0)
    borrowed = await harness.submit("vision", "borrows", gpus=4)
    await harness.runs(borrowed)
    await harness.submit("speech", "owner", gpus=4)
    await harness.wait(300)
    assert await harness.phase(borrowed) == "running"
    made.spec = msgspec.structs.replace(made.spec, preemption_delay_seconds=None)
    harness.loop.enqueue(ProjectChanged(Change(ChangeType.MODIFIED, 99, made)))
    await harness.settle()
    assert await harness.phase(borrowed) == "preempting"


async def test_a_project_may_spread_its_work(cluster: SchedulerHarness) -> None:
    await cluster.project("wide", 8, placement="spread")
    packed = [await cluster.submit("vision", f"p{n}") for n in range(2)]
    wide = [await cluster.submit("wide", f"w{n}") for n in range(2)]
    assert await nodes(cluster, packed[0]) == await nodes(cluster, packed[1])
    assert await nodes(cluster, wide[0]) != await nodes(cluster, wide[1])


async def test_the_reservation_delay_of_a_project_holds_for_its_large_work(
    harness: SchedulerHarness,
) -> None:
    """Whoever came later no longer takes what becomes free, once the reservation delay is over."""
    await harness.project("vision", 4, reservation_delay_seconds=30.0)
    first = [await harness.submit("vision", f"first{n}") for n in range(4)]
    await harness.runs(*first)
    large = await harness.submit("vision", "large", gpus=4)
    later = [await harness.submit("vision", f"later{n}") for n in range(8)]
    await harness.wait(60)
    for uid in (*first, *later[:4]):
        await harness.runs(uid)
        await harness.ends(uid)
        await harness.wait(1)
    assert await harness.phase(large) == "starting"
