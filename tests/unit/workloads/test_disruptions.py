"""Nodes of a cluster that are emptied, silent or gone, and what becomes of our own work there."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.contract import TaskId, TaskPhase
from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    NodeDeleted,
    NodeSeen,
    TaskPodSeen,
)
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod
from carrel_scheduler.ledger.resources import conditions
from carrel_scheduler.workloads.state.events import TaskSeen
from carrel_schema.objects import ReasonInfo
from carrel_schema.sections import Retries
from unit.workloads.harness import NODE, SchedulerHarness

SPARE = "spare"


class Said:
    """Remembers what was announced of tasks, and how many were told to end by then."""

    def __init__(self, harness: SchedulerHarness) -> None:
        self.harness = harness
        self.words: dict[TaskId, str] = {}

    async def announce(self, task: TaskId, why: ReasonInfo) -> None:
        assert task not in self.harness.engine.stopping
        self.words[task] = why.sentence


def node(name: str = NODE, *, ready: bool = True, **spec: Any) -> NodeSeen:
    amounts = {"nvidia.com/gpu": "4", "cpu": "64", "memory": "256Gi"}
    told = {
        "metadata": {"name": name, "annotations": spec.pop("annotations", {})},
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }
    return NodeSeen(msgspec.convert(told, Node))


def leaving(task: TaskId, reason: str = "EvictionByEvictionAPI", node: str = NODE) -> TaskPodSeen:
    told = {
        "metadata": {
            "name": str(task),
            "namespace": "carrel-vision",
            "uid": f"pod-{task}",
            "labels": {"carrel.dev/task": str(task)},
            "deletionTimestamp": "2026-11-22T10:00:00Z",
        },
        "spec": {"nodeName": node},
        "status": {
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
        },
    }
    return TaskPodSeen(msgspec.convert(told, Pod))


@pytest.fixture
async def cluster(harness: SchedulerHarness) -> SchedulerHarness:
    """A cluster of two nodes, one of which is closed; a project."""
    await hear(harness, node(), node(SPARE, unschedulable=True), AllReconciled())
    await harness.project("vision", 8)
    return harness


async def hear(harness: SchedulerHarness, *news: Any) -> None:
    harness.loop.enqueue(ExternalEvents(news))
    await harness.settle()


async def job_and_workspace(harness: SchedulerHarness) -> tuple[str, str]:
    job = await harness.submit("vision", "job")
    place = await harness.submit("vision", "ada", user="ada", kind="workspace", preemptible=False)
    await harness.runs(job, place)
    return job, place


async def test_who_sits_at_a_workspace_hears_of_its_node_and_of_its_return(
    cluster: SchedulerHarness,
) -> None:
    job, place = await job_and_workspace(cluster)
    await hear(cluster, node(unschedulable=True))
    told = await cluster.stored(place)
    assert told.status.reason is not None
    assert told.status.reason.token == "NodeCordoned"
    assert "`desk` takes no new work" in told.status.reason.sentence
    (condition,) = [
        one for one in conditions.of(told)["conditions"] if one["type"] == "DisruptionTarget"
    ]
    assert condition["status"] == "True"
    assert condition["message"] == told.status.reason.sentence
    assert (await cluster.stored(job)).status.reason is None  # it moves by itself
    await hear(cluster, node())
    assert (await cluster.stored(place)).status.reason is None


async def test_a_drained_job_goes_on_elsewhere_and_its_workspace_says_why(
    cluster: SchedulerHarness,
) -> None:
    said = cluster.loop.executor.announcer = Said(cluster)
    job, place = await job_and_workspace(cluster)
    await hear(cluster, node(unschedulable=True), node(SPARE))
    await hear(cluster, *(leaving(task) for uid in (job, place) for task in cluster.tasks_of(uid)))
    assert await cluster.phases(job, place) == ["preempting", "preempting"]
    assert set(said.words.values()) == {"`desk` is being emptied for maintenance."}
    told = (await cluster.stored(place)).status.reason
    assert told is not None
    assert told.help.startswith("Save your work now")
    await cluster.ends(job, 1)
    await cluster.ends(place, 0)
    moved = (await cluster.stored(job)).status
    assert (moved.phase, moved.attempt, moved.failures) == ("starting", 1, 0)
    assert moved.tasks[0].node == SPARE
    assert (moved.preemptions, moved.last_preemption and moved.last_preemption.rule) == (1, "drain")
    ended = (await cluster.stored(place)).status
    assert ended.phase == "stopped"
    assert ended.reason is not None
    assert "maintenance of its node" in ended.reason.sentence


async def test_a_drain_counts_under_the_class_node(cluster: SchedulerHarness) -> None:
    uid = await cluster.submit("vision", "train", gpus=1, retries=Retries(node=0))
    await cluster.runs(uid)
    await hear(cluster, node(unschedulable=True), node(SPARE))
    await hear(cluster, *(leaving(task) for task in cluster.tasks_of(uid)))
    await cluster.ends(uid, 1)
    status = (await cluster.stored(uid)).status
    assert (status.phase, status.failures, status.losses) == ("failed", 0, 1)
    assert status.reason is not None
    assert status.reason.token == "LostTooOften"


@pytest.mark.parametrize(
    ("news", "preemptions"),
    [
        ("PreemptionByScheduler", 1),
        ("Reclaimed", 0),  # our own words of an earlier scheduler
    ],
)
async def test_only_what_others_began_counts(
    cluster: SchedulerHarness, news: str, preemptions: int
) -> None:
    job, _ = await job_and_workspace(cluster)
    (task,) = cluster.tasks_of(job)
    await hear(cluster, leaving(task, news))
    await hear(cluster, leaving(task, news))
    status = (await cluster.stored(job)).status
    assert status.preemptions == preemptions
    if preemptions:
        assert status.reason is not None
        assert status.reason.token == "Evicted"


async def test_a_silent_node_is_told_and_its_work_is_lost_only_once(
    cluster: SchedulerHarness,
) -> None:
    job, place = await job_and_workspace(cluster)
    await hear(cluster, node(ready=False), node(SPARE))
    for uid in (job, place):
        reason = (await cluster.stored(uid)).status.reason
        assert reason is not None
        assert reason.token == "NodeSilent"
    (task,) = cluster.tasks_of(job)
    await hear(cluster, leaving(task, "DeletionByTaintManager"))
    assert await cluster.phase(job) == "running"  # nobody there hears that it is to end
    lose(cluster, task, "its node does not answer")
    await cluster.settle()
    moved = (await cluster.stored(job)).status
    assert (moved.phase, moved.attempt, moved.failures) == ("starting", 1, 0)


def lose(harness: SchedulerHarness, task: TaskId, how: str) -> None:
    status = msgspec.structs.replace(
        harness.engine.alive.pop(task),
        phase=TaskPhase.ENDED,
        ended_at=harness.now,
        message=how,
        lost=True,
    )
    harness.engine.ended[task] = status
    harness.loop.enqueue(TaskSeen(status))


async def test_a_deleted_node_stays_closed_until_its_tasks_are_known_to_be_lost(
    cluster: SchedulerHarness,
) -> None:
    job, place = await job_and_workspace(cluster)
    await hear(cluster, NodeDeleted(NODE), node(SPARE))
    nodes = cluster.loop.state.nodes
    assert NODE in nodes.slots
    assert not nodes.schedulable[nodes.slots[NODE]]
    await cluster.recover()  # another scheduler finds no such node
    await hear(cluster, node(SPARE), AllReconciled())
    assert await cluster.phases(job, place) == ["running", "running"]
    for uid in (job, place):
        (task,) = cluster.tasks_of(uid)
        lose(cluster, task, "its node is gone")
    await cluster.settle()
    assert NODE not in cluster.loop.state.nodes.slots
    assert await cluster.phases(job, place) == ["starting", "stopped"]
    assert (await cluster.stored(job)).status.tasks[0].node == SPARE


async def test_work_on_a_node_that_nobody_knows_any_more_is_taken_over(
    cluster: SchedulerHarness,
) -> None:
    await hear(cluster, node(SPARE))
    job = await cluster.submit("vision", "job", gpus=4)
    other = await cluster.submit("vision", "other", gpus=4)
    await cluster.runs(job, other)
    await cluster.recover()
    where = {name: cluster.loop.state.nodes.slots.get(name) for name in (NODE, SPARE)}
    assert None not in where.values()
    assert await cluster.phases(job, other) == ["running", "running"]
