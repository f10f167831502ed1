"""Our own work with MIG instances: placed, counted for its project, told what there is."""

from functools import partial

import msgspec
import pytest

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.messages import AllReconciled, NodeSeen
from carrel_scheduler.engines.kubernetes.pods.types import Node
from carrel_scheduler.engines.kubernetes.tasks.manifest import check_runnable
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings
from carrel_scheduler.workloads.admission import NotAdmitted, admit
from carrel_scheduler.workloads.launch import fitting
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from unit.workloads.harness import SchedulerHarness

PROFILE = "1g.10gb"


@pytest.fixture
async def cluster(harness: SchedulerHarness) -> SchedulerHarness:
    """A node with a GPU, and another one that is divided."""
    amounts = {
        "nvidia.com/gpu": "1",
        f"nvidia.com/mig-{PROFILE}": "7",
        "cpu": "64",
        "memory": "256Gi",
    }
    told = {
        "metadata": {"name": "divided"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    harness.loop.enqueue(ExternalEvents((NodeSeen(msgspec.convert(told, Node)), AllReconciled())))
    await harness.settle()
    await harness.project("vision", 1)
    return harness


def asks(profile: str, name: str = "job") -> Workload:
    spec = WorkloadSpec(
        kind="training",
        user="ada",
        command=["true"],
        resources=Resources(mig_profile=profile),
        tasks=3,
    )
    return Workload(meta=Meta(name=name, project="vision", uid="u"), spec=spec)


async def test_what_no_node_offers_is_refused_with_what_there_is(cluster: SchedulerHarness) -> None:
    live = LiveState(
        cluster.loop,
        fitting.on_cluster(partial(check_runnable, settings=PodSettings(image="trainer"))),
    )
    admit(asks(PROFILE), live)
    with pytest.raises(NotAdmitted) as refused:
        admit(asks("3g.40gb"), live)
    found = refused.value
    assert (found.code, found.field, found.value) == ("never_fits", "mig_profile", "3g.40gb")
    assert f"`nvidia.com/mig-{PROFILE}`" in found.expected
    with pytest.raises(NotAdmitted, match="GPUs are not divided"):
        admit(asks(PROFILE), LiveState(cluster.loop))


async def test_they_are_parts_of_gpus_of_project_and_node(
    cluster: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resources(**_: object) -> Resources:
        return Resources(mig_profile=PROFILE)

    monkeypatch.setattr("unit.workloads.harness.Resources", resources)
    uid = await cluster.submit("vision", "three", tasks=3)
    await cluster.runs(uid)
    assert [cluster.engine.specs[task].mig_profile for task in cluster.tasks_of(uid)] == [
        PROFILE
    ] * 3
    live = LiveState(cluster.loop)
    assert live.project_use()["vision"].gpu_allocated_milli == 375
    (node,) = [one for one in live.nodes() if one.name == "divided"]
    assert (node.gpu_milli, node.gpu_allocated_milli, node.largest_free_gpus) == (1875, 375, 1)
    history = await cluster.ledger.transitions(workload_uid=uid)
    assert max(one.gpu_milli for one in history) == 375
