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
from unit.workloads.desk import NODE, Desk


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


async def hear(desk: Desk, *news: Any) -> None:
    desk.loop.enqueue(ExternalEvents(news))
    await desk.settle()


async def test_a_node_that_cannot_be_read_is_set_aside_and_the_others_serve(desk: Desk) -> None:
    await desk.project("vision", 8)
    await hear(desk, node(NODE, "4"), node("odd", "four"), node("good", "4"), AllReconciled())
    assert [(one.source, one.key) for one in desk.loop.quarantine.items] == [("node", "odd")]
    uids = [await desk.submit("vision", f"job-{number}", gpus=4) for number in range(2)]
    assert await desk.phases(*uids) == ["starting", "starting"]
    await hear(desk, node("odd", "4"))  # it changes
    assert not list(desk.loop.quarantine.items)
    assert await desk.phase(await desk.submit("vision", "more", gpus=4)) == "starting"


async def test_news_that_mean_nothing_end_nothing(desk: Desk) -> None:
    await desk.project("vision", 4)
    wrong: Any = None
    await hear(
        desk,
        node(NODE, "4"),
        NodeSeen(wrong),
        ExternalPodSeen(wrong),
        NodeDeleted(wrong),
        AllReconciled(),
    )
    uid = await desk.submit("vision", "job")
    assert await desk.phase(uid) == "starting"
    assert desk.loop.quarantine.counts


async def test_what_fails_while_gpus_are_missing_counts_as_lost(desk: Desk) -> None:
    """Which GPU went away nobody can say: what runs goes on, what fails is not to blame."""
    await desk.project("vision", 4)
    await hear(desk, node(NODE, "4"), AllReconciled())
    uids = [await desk.submit("vision", f"job-{number}") for number in range(4)]
    await desk.runs(*uids)
    await hear(desk, node(NODE, "3"))
    assert not desk.engine.stopping
    assert len(LiveState(desk.loop).nodes()[0].devices) == 4
    await desk.ends(uids[2], 1)
    status = (await desk.stored(uids[2])).status
    assert (status.phase, status.failures, status.losses) == ("pending", 0, 1)
    await desk.ends(uids[0], 1)  # three are in use, three are there
    assert (await desk.stored(uids[0])).status.failures == 1
    assert await desk.phases(uids[1], uids[3]) == ["running", "running"]


async def test_a_workload_that_cannot_be_settled_holds_up_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.project("vision", 4)
    await hear(desk, node(NODE, "4"), AllReconciled())
    settle, failed = reconcile_pass.reconcile_workload, []

    def failing(current: Any, workload: Any) -> None:
        settle(current, workload)
        failed.append(workload.uid)
        raise ZeroDivisionError

    monkeypatch.setattr(reconcile_pass, "reconcile_workload", failing)
    pod = guest("pod-1")
    await hear(desk, pod)
    assert failed
    assert desk.loop.quarantine.counts["pod", "ZeroDivisionError"]
    assert not desk.loop.state.jobs.by_uid
    monkeypatch.undo()
    assert await desk.phase(await desk.submit("vision", "job", gpus=4)) == "starting"


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
