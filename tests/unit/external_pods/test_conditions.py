"""What the status of groups says."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.external_pods import conditions
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import (
    Allocation,
    ExternalPod,
    ExternalTask,
    ExternalWorkload,
    PodRef,
)
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole, Grouping
from carrel_scheduler.engines.kubernetes.pods.types import NodeGroup, PodGroup
from unit.external_pods.world import node, pod

NOW = 1_000_000.0


def group(least: int = 2, **status: Any) -> PodGroup:
    told = {
        "metadata": {"name": "pair", "uid": "g", "generation": 3},
        "spec": {"minMember": least},
        "status": status,
    }
    return msgspec.convert(told, PodGroup)


def workload(pods: int, placed: int = 0, waits: str = "") -> ExternalWorkload:
    grouping = Grouping("g", "pair", "a", roles=(GangRole("", 2),))
    made = ExternalWorkload("g-gang", grouping, single=False)
    for number in range(pods):
        one = ExternalPod(PodRef("a", f"p{number}", f"u{number}"), grouping, pod(f"p{number}"))
        task = ExternalTask("", pod=one, waits=waits)
        task.allocation = Allocation("n0", (number,)) if number < placed else None
        made.tasks.append(task)
    return made


@pytest.mark.parametrize(
    ("workloads", "phase", "reason"),
    [
        ([], "pending", "It starts with 2 pods at once, and none of its pods is there."),
        ([workload(1)], "pending", "It starts with 2 pods at once, and only 1 of them is there."),
        ([workload(2)], "pending", "It is in the queue."),
        ([workload(2, waits="It waits: no claim.")], "pending", "It waits: no claim."),
        ([workload(3, placed=2)], "placed", ""),
    ],
)
def test_a_group_of_pods_says_what_became_of_it(
    workloads: list[ExternalWorkload], phase: str, reason: str
) -> None:
    told = conditions.pod_group_status(group(), workloads, (), NOW)
    assert (told["phase"], told["reason"]) == (phase, reason)
    assert told["observedGeneration"] == 3
    (condition,) = told["conditions"]
    assert (condition["type"], condition["status"]) == ("Scheduled", str(phase == "placed"))


def test_the_queues_reason_and_a_missing_project_are_told() -> None:
    waiting = workload(2)
    waiting.why = ("QuotaUsed", "The quota is used.")
    assert (
        conditions.pod_group_status(group(), [waiting], (), NOW)["reason"] == "The quota is used."
    )
    (one, _) = (task.pod for task in workload(2).tasks)
    assert one is not None
    told = conditions.pod_group_status(group(), [], [one], NOW)
    assert (told["pods"], "no project `a`" in told["reason"]) == (1, True)


def test_what_has_ended_stays_so_and_keeps_its_times() -> None:
    first = conditions.pod_group_status(group(), [workload(2, placed=2)], (), NOW)
    again = conditions.pod_group_status(group(**first), [workload(2, placed=2)], (), NOW + 60)
    assert again == first
    ended = conditions.pod_group_status(group(**first), [], (), NOW + 90)
    assert (ended["phase"], ended["placed"]) == ("ended", 0)
    assert [one["type"] for one in ended["conditions"]] == ["Scheduled", "Complete"]
    assert conditions.pod_group_status(group(**ended), [], (), NOW + 99) == ended


def test_a_group_of_nodes_counts_them() -> None:
    of_nodes = msgspec.convert({"metadata": {"name": "a100", "generation": 1}}, NodeGroup)
    told = conditions.node_group_status(of_nodes, [node("n0", 4), node("n1", 8, ready=False)], NOW)
    assert (told["nodes"], told["available"], told["gpus"]) == (2, 1, 12)
    assert told["conditions"][0]["message"] == "2 nodes, of which 1 may be given new work."
    empty = conditions.node_group_status(of_nodes, [], NOW)["conditions"][0]
    assert (empty["status"], empty["reason"]) == ("False", "NoNodes")
