"""Nodes and pods of a cluster that say what cannot be, and GPUs that a node no longer offers."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods import reconcile_pass
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    ExternalPodSeen,
    NodeDeleted,
    NodeSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import ExternalPod, PodRef
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod
from carrel_scheduler.workloads.reconcile.live import LiveState
from unit.workloads.harness import NODE, SchedulerHarness


def node(name: str, gpus: str, **status: Any) -> NodeSeen:
    amounts = {"nvidia.com/gpu": gpus, "cpu": "64", "memory": "256Gi"}
    told = {
        "metadata": {"name": name},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            **status,
        },
    }
    return NodeSeen(msgspec.convert(told, Node))


async def hear(harness: SchedulerHarness, *news: Any) -> None:
    harness.loop.enqueue(ExternalEvents(news))
    await harness.settle()


async def test_a_node_that_cannot_be_read_is_set_aside_and_the_others_serve(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 8)
    await hear(harness, node(NODE, "4"), node("odd", "four"), node("good", "4"), AllReconciled())
    assert [(one.source, one.key) for one in harness.loop.quarantine.items] == [("node", "odd")]
    uids = [await harness.submit("vision", f"job-{number}", gpus=4) for number in range(2)]
    assert await harness.phases(*uids) == ["starting", "starting"]
    await hear(harness, node("odd", "4"))  # it changes
    assert not list(harness.loop.quarantine.items)
    assert await harness.phase(await harness.submit("vision", "more", gpus=4)) == "starting"


async def test_news_that_mean_nothing_end_nothing(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    wrong: Any = None
    await hear(
        harness,
        node(NODE, "4"),
        NodeSeen(wrong),
        ExternalPodSeen(wrong),
        NodeDeleted(wrong),
        AllReconciled(),
    )
    uid = await harness.submit("vision", "job")
    assert await harness.phase(uid) == "starting"
    assert harness.loop.quarantine.counts


async def test_what_fails_while_gpus_are_missing_counts_as_lost(harness: SchedulerHarness) -> None:
    """Which GPU went away nobody can say: what runs goes on, what fails is not to blame."""
    await harness.project("vision", 4)
    await hear(harness, node(NODE, "4"), AllReconciled())
    uids = [await harness.submit("vision", f"job-{number}") for number in range(4)]
    await harness.runs(*uids)
    await hear(harness, node(NODE, "3"))
    assert not harness.engine.stopping
    assert len(LiveState(harness.loop).nodes()[0].devices) == 4
    await harness.ends(uids[2], 1)
    status = (await harness.stored(uids[2])).status
    assert (status.phase, status.failures, status.losses) == ("pending", 0, 1)
    await harness.ends(uids[0], 1)  # three are in use, three are there
    assert (await harness.stored(uids[0])).status.failures == 1
    assert await harness.phases(uids[1], uids[3]) == ["running", "running"]


async def test_a_workload_that_cannot_be_settled_holds_up_no_other(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 4)
    await hear(harness, node(NODE, "4"), AllReconciled())
    settle, failed = reconcile_pass.reconcile_workload, []

    def failing(current: Any, workload: Any) -> None:
        settle(current, workload)
        failed.append(workload.uid)
        raise ZeroDivisionError

    monkeypatch.setattr(reconcile_pass, "reconcile_workload", failing)
    pod = guest("pod-1")
    await hear(harness, pod)
    assert failed
    assert harness.loop.quarantine.counts["pod", "ZeroDivisionError"]
    assert not harness.loop.state.jobs.by_uid
    monkeypatch.undo()
    assert await harness.phase(await harness.submit("vision", "job", gpus=4)) == "starting"


def guest(name: str) -> ExternalPodSeen:
    amounts = {"nvidia.com/gpu": "1", "cpu": "1"}
    told = {
        "metadata": {"name": name, "namespace": "carrel-vision", "uid": f"uid-{name}"},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]
        },
    }
    pod = msgspec.convert(told, Pod)
    ref = PodRef("carrel-vision", name, pod.metadata.uid)
    return ExternalPodSeen(ExternalPod(ref, Grouping(f"own-{name}", name, "vision"), pod, ""))
