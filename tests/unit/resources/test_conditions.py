"""Conditions and what tables show, from a status alone."""

from typing import Any

import pytest

from carrel_scheduler.ledger.resources import conditions
from carrel_schema.objects import (
    Meta,
    Phase,
    ReasonInfo,
    Resources,
    TaskInfo,
    Workload,
    WorkloadSpec,
)


def workload(phase: Phase, **status: Any) -> Workload:
    spec = WorkloadSpec(tasks=2, resources=Resources(gpu_milli=1000))
    made = Workload(meta=Meta(name="n", created_at=100.0, generation=4), spec=spec)
    made.status.phase = phase
    for name, value in status.items():
        setattr(made.status, name, value)
    return made


def held(obj: Workload) -> dict[str, str]:
    return {one["type"]: one["status"] for one in conditions.of(obj)["conditions"]}


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("pending", {"Scheduled": "False", "Running": "False"}),
        ("starting", {"Scheduled": "True", "Running": "False"}),
        ("running", {"Scheduled": "True", "Running": "True"}),
        ("succeeded", {"Scheduled": "False", "Running": "False", "Complete": "True"}),
        ("failed", {"Scheduled": "False", "Running": "False", "Failed": "True"}),
        ("stopped", {"Scheduled": "False", "Running": "False", "Suspended": "True"}),
    ],
)
def test_what_holds(phase: Phase, expected: dict[str, str]) -> None:
    assert held(workload(phase)) == {"Accepted": "True", **expected}


def test_why_it_waits_and_since_when() -> None:
    reason = ReasonInfo(token="QuotaUsed", sentence="Waits for a GPU.")
    found = conditions.of(workload("pending", reason=reason, queued_at=200.0))["conditions"][1]
    assert found == {
        "type": "Scheduled",
        "status": "False",
        "reason": "QuotaUsed",
        "message": "Waits for a GPU.",
        "lastTransitionTime": "1970-01-01T00:03:20Z",
        "observedGeneration": 4,
    }


def test_what_tables_show() -> None:
    tasks = [
        TaskInfo(index=0, attempt=0, node="a", started_at=1.0),
        TaskInfo(index=1, attempt=0, node="b"),
    ]
    assert conditions.shown(workload("running", tasks=tasks)) == {
        "status": "Running",
        "node": "2 nodes",
        "gpus": "2 (2)",
        "pods": "1 (1)",
    }


@pytest.mark.parametrize(
    ("phase", "token", "cls", "word"),
    [
        ("stopped", "Reclaimed", "", "Preempted"),
        ("stopped", "Idle", "", "Idle"),
        ("stopped", "Asked", "", "Suspended"),
        ("pending", "Reclaimed", "evicted", "Preempted"),
        ("pending", "QuotaUsed", "", "Pending"),
    ],
)
def test_the_word_is_the_command_lines(phase: Phase, token: str, cls: str, word: str) -> None:
    found = conditions.shown(workload(phase, reason=ReasonInfo(token=token, cls=cls)))
    assert found["status"] == word
