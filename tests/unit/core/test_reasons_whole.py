# ruff: noqa: E501 - one reason on one line reads best
"""Whole reasons, every field: who is told what in situations that can be worked out by hand.

A reason is written as its token and the fields that are not empty; a holder as
``project/uid:amount@since``, with ``+`` behind an amount that is borrowed.
"""

from collections.abc import Sequence
from dataclasses import fields

import pytest

from carrel_scheduler.core.events import (
    CapacityReserved,
    Event,
    Preemptibility,
    TaskPlaced,
    TaskReleasing,
    TopologySet,
)
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.reasons import Reason
from unit.core.situations import (
    asking,
    node,
    queue,
    reasons,
    running,
    training,
    workspace,
)

CASES: list[tuple[Sequence[Event], dict[str, str]]] = [
    (
        [
            node("n", 4, cpu=16, memory_gib=32),
            queue("a", 2),
            queue("b", 2),
            *running(training("x", "a", 2), "n", 0, 1, at=3.0),
            *running(workspace("y", "b", 0.5), "n", 2, at=4.0),
            *running(workspace("z", "b", 0.75), "n", 3, at=5.0),
            training("w", "b", 0.75),
            training("v", "a", 1),
            workspace("u", "a", 0.5),
        ],
        {
            "u": "Starting, project=a, workload=u, workload_uid=u, nodes=n",
            "v": "QuotaUsed, resource=gpu, requested=1000, short=1000, bound=2000, project=a, holders=a/x:2000@3 b/z:750@5 b/y:500@4",
            "w": "WaitsForRoom, resource=gpu, requested=750, short=500, bound=4000, project=b, holders=a/x:2000@3 b/z:750@5 b/y:500@4",
        },
    ),
    (
        [
            node("n", 2, cpu=8),
            node("m", 2, cpu=8),
            queue("a", 4),
            *running(workspace("x", "a", 1, cpu=6), "n", 0),
            *running(workspace("y", "a", 1, cpu=5), "m", 0),
            training("w", "a", 1, cpu=4),
            training("v", "a", 0, cpu=3.5),
            training("t", "a", tasks=2, cpu=3),
        ],
        {
            "t": "WaitsForRoom, resource=cpu, requested=6000, short=1000, bound=16000, project=a, holders=a/x:6000@1 a/y:5000@1",
            "v": "NoNodeFits, resource=cpu, requested=3500, short=500, bound=3000, project=a, holders=a/x:6000@1 a/y:5000@1, ahead=1",
            "w": "NoNodeFits, resource=cpu, requested=4000, short=1000, bound=3000, project=a, holders=a/x:6000@1 a/y:5000@1, ahead=2",
        },
    ),
    (
        [
            node("n", 2, memory_gib=8),
            queue("a", 4),
            *running(workspace("x", "a", 1, memory_gib=6), "n", 0),
            training("w", "a", 1, memory_gib=4),
        ],
        {
            "w": "WaitsForRoom, resource=memory, requested=4096, short=2048, bound=8192, project=a, holders=a/x:6144@1",
        },
    ),
    (
        [
            node("n", 8),
            queue("d", 4),
            queue("a", 2, parent="d"),
            queue("b", 2, parent="d"),
            queue("c", 4),
            *running(workspace("x", "a", 2), "n", 0, 1),
            *running(training("x2", "a", 2), "n", 2, 3),
            *running(training("y", "c", 4), "n", 4, 5, 6, 7),
            training("w", "b", 2),
            training("v", "a", 1),
            workspace("u", "b", 3),
        ],
        {
            "u": "NonPreemptibleBeyondQuota, resource=gpu, requested=3000, short=1000, bound=2000, project=b",
            "v": "QuotaUsed, resource=gpu, requested=1000, short=1000, bound=2000, project=a, holders=c/y:4000@1 a/x2:2000+@1 a/x:2000@1",
            "w": "WaitsForRoom, resource=gpu, requested=2000, project=b, workload=w, workload_uid=w, holders=a/x2:2000+@1, nodes=n, ahead=1",
        },
    ),
    (
        [
            node("n", 8),
            queue("d", 4, limit=5),
            queue("a", 2, parent="d", limit=3),
            queue("b", 2, parent="d"),
            *running(training("x", "a", 2), "n", 0, 1),
            *running(training("y", "b", 2), "n", 2, 3),
            training("w", "a", 2),
            training("v", "b", 2),
            training("u", "b", 1),
            training("t", "a", 4),
        ],
        {
            "t": "OverLimit, resource=gpu, requested=4000, short=1000, bound=3000, project=a",
            "u": "Starting, project=b, workload=u, workload_uid=u, nodes=n",
            "v": "OverLimit, resource=gpu, requested=2000, short=2000, bound=5000, project=d, holders=a/x:2000@1 b/y:2000@1",
            "w": "OverLimit, resource=gpu, requested=2000, short=1000, bound=3000, project=a, holders=a/x:2000@1, ahead=1",
        },
    ),
    (
        [
            node("n", 4),
            node("m", 4),
            queue("a", 8),
            *running(workspace("x", "a", 3), "n", 0, 1, 2),
            *running(workspace("y", "a", 3), "m", 0, 1, 2),
            training("w", "a", 2),
            training("g", "a", gang=Group(requests=(asking(1),) * 3)),
            training("e", "a", gang=Group(requests=(asking(1),) * 6, min_tasks=4)),
        ],
        {
            "e": "QuotaUsed, resource=gpu, requested=4000, short=2000, bound=8000, project=a, holders=a/x:3000@1 a/y:3000@1",
            "g": "QuotaUsed, resource=gpu, requested=3000, short=1000, bound=8000, project=a, holders=a/x:3000@1 a/y:3000@1, ahead=1",
            "w": "NoNodeFits, resource=gpu, requested=2000, short=1000, bound=1000, project=a, holders=a/x:3000@1 a/y:3000@1, ahead=2",
        },
    ),
    (
        [
            node("n", 2),
            queue("a", 2),
            *running(training("x", "a", 2), "n", 0, 1),
            TaskReleasing("x", 0),
            training("w", "a", 1),
            training("v", "a", 2),
        ],
        {
            "v": "WaitsForRoom, resource=gpu, requested=2000, project=a, workload=v, workload_uid=v, holders=a/x:2000@1, nodes=n",
            "w": "QuotaUsed, resource=gpu, requested=1000, short=1000, bound=2000, project=a, holders=a/x:2000@1, ahead=1",
        },
    ),
    (
        [
            node("n", 4),
            queue("a", 1),
            queue("b", 3),
            *running(training("x", "a", 1), "n", 0),
            *running(training("x2", "a", 3), "n", 1, 2, 3),
            training("w", "b", 2),
            training("v", "b", 1),
            training("u", "a", 1),
        ],
        {
            "u": "QuotaUsed, resource=gpu, requested=1000, short=1000, bound=1000, project=a, holders=a/x2:3000+@1 a/x:1000@1",
            "v": "WaitsForRoom, resource=gpu, requested=1000, project=b, workload=v, workload_uid=v, holders=a/x2:3000+@1, nodes=n",
            "w": "WaitsForRoom, resource=gpu, requested=2000, project=b, workload=w, workload_uid=w, holders=a/x2:3000+@1, nodes=n, ahead=1",
        },
    ),
    (
        [
            node("n", 4, cpu=8),
            queue("a", 4),
            *running(workspace("x", "a", 2, cpu=6), "n", 0, 1),
            training("g", "a", gang=Group(requests=(asking(1, cpu=1), asking(2, cpu=3)))),
        ],
        {
            "g": "QuotaUsed, resource=gpu, requested=3000, short=1000, bound=4000, project=a, holders=a/x:2000@1",
        },
    ),
    (
        [
            node("n", 4),
            queue("a", 4),
            queue("b"),
            *running(training("x", "a", 3), "n", 0, 1, 2),
            training("w", "a", 2),
            CapacityReserved("w", (("n", (0, 3), 0),)),
            TaskReleasing("x", 0),
            training("v", "a", 1),
            training("u", "b", 0.5),
        ],
        {
            "u": "WaitsForRoom, resource=gpu, requested=500, project=b, workload=u, workload_uid=u, holders=a/x:3000@1, nodes=n",
            "v": "WaitsForRoom, resource=gpu, requested=1000, project=a, workload=v, workload_uid=v, holders=a/x:3000@1, nodes=n",
            "w": "WaitsForRoom, resource=gpu, requested=2000, project=a, workload=w, workload_uid=w, holders=a/x:3000@1, nodes=n, ahead=1",
        },
    ),
    (
        [
            node("m", 1, mig_model="A100-40GB", gpu_memory_mib=40960),
            queue("a", 1),
            training(
                "p", "a", request=asking(0, mig_profile="3g.20gb"), preemptible=Preemptibility.NO
            ),
            TaskPlaced("p", 0, "m", (0,), 1.0, 0b1111),
            training("q", "a", request=asking(0, mig_profile="4g.20gb")),
            training("q2", "a", request=asking(0, mig_profile="7g.40gb")),
        ],
        {
            "q": "NoMigInstance, resource=mig, requested=1, short=1, bound=1, project=a, holders=a/p:500@1, detail=4g.20gb",
            "q2": "QuotaUsed, resource=gpu, requested=1000, short=500, bound=1000, project=a, holders=a/p:500@1, ahead=1",
        },
    ),
    (
        [
            node("n", 2, extended=(("nic", 2),)),
            queue("a", 2),
            *running(workspace("x", "a", request=asking(1, extended=(("nic", 2),))), "n", 0),
            training("w", "a", request=asking(1, extended=(("nic", 1),))),
            training("v", "a", request=asking(1, extended=(("nic", 3),))),
        ],
        {
            "v": "NeverFits, resource=nic, requested=3, short=1, bound=2, project=a, nodes=n",
            "w": "WaitsForRoom, resource=nic, requested=1, short=1, bound=2, project=a, holders=a/x:2@1, ahead=1",
        },
    ),
    (
        [
            TopologySet("t", ("rack",)),
            node("n1", 2, labels=(("rack", "r1"),)),
            node("n2", 2, labels=(("rack", "r2"),)),
            queue("a", 4),
            *running(workspace("x", "a"), "n1", 0),
            *running(workspace("y", "a"), "n2", 0),
            training("g", "a", gang=Group(requests=(asking(1),) * 2, level=Level(required="rack"))),
            training("h", "a", gang=Group(requests=(asking(1),) * 3, level=Level(required="rack"))),
        ],
        {
            "g": "TopologyTooSmall, resource=tasks, requested=2, short=1, bound=1, project=a, detail=rack",
            "h": "TopologyTooSmall, resource=tasks, requested=3, short=1, bound=2, project=a, ahead=1, detail=rack",
        },
    ),
    (
        [
            node("n", 4),
            queue("a", 4),
            training("e", "a", gang=Group(requests=(asking(1),) * 4, min_tasks=2)),
            TaskPlaced("e", 0, "n", (0,), 1.0),
            TaskPlaced("e", 1, "n", (1,), 1.0),
            *running(workspace("x", "a", 2), "n", 2, 3),
            training("w", "a", 1),
        ],
        {
            "e": "Growing, resource=gpu, requested=1000, short=1000, bound=4000, project=a, holders=a/e:2000@1 a/x:2000@1, tasks=4, there=2",
            "w": "QuotaUsed, resource=gpu, requested=1000, short=1000, bound=4000, project=a, holders=a/e:2000@1 a/x:2000@1",
        },
    ),
    (
        [
            node("n", 8),
            queue("a", 7),
            queue("b", 1),
            *(
                e
                for k in range(7)
                for e in running(workspace(f"x{k}", "a", 0.5 if k % 2 else 1), "n", k, at=float(k))
            ),
            *running(workspace("y", "b", 1), "n", 7),
            training("w", "a", 2),
        ],
        {
            "w": "QuotaUsed, resource=gpu, requested=2000, short=2000, bound=7000, project=a, holders=a/x0:1000@0 b/y:1000@1 a/x2:1000@2 a/x4:1000@4 a/x6:1000@6",
        },
    ),
    (
        [
            node("n", 2),
            node("m", 2),
            queue("a", 4),
            *running(workspace("x", "a", 2), "n", 0, 1),
            *running(workspace("y", "a", 1), "m", 0),
            training("w", "a", 1, nodes=["n"]),
            training("v", "a", 2, nodes=["m"]),
        ],
        {
            "v": "QuotaUsed, resource=gpu, requested=2000, short=1000, bound=4000, project=a, holders=a/y:1000@1",
            "w": "WaitsForRoom, resource=gpu, requested=1000, short=1000, bound=2000, project=a, holders=a/x:2000@1, ahead=1",
        },
    ),
    (
        [
            node("n", 4),
            queue("d", 2, over_quota=False),
            queue("a", 4, parent="d"),
            queue("b", 1, over_quota=False),
            *running(training("x", "a", 2), "n", 0, 1),
            *running(training("y", "b", 1), "n", 2),
            training("w", "a", 1),
            training("v", "b", 1),
            training("u", "b", 2),
        ],
        {
            "u": "OverQuotaOff, resource=gpu, requested=2000, short=1000, bound=1000, project=b",
            "v": "OverQuotaOff, resource=gpu, requested=1000, short=1000, bound=1000, project=b, holders=b/y:1000@1, ahead=1",
            "w": "OverQuotaOff, resource=gpu, requested=1000, short=1000, bound=2000, project=d, holders=a/x:2000@1",
        },
    ),
    (
        [
            node("n", 2),
            queue("a", 2),
            training("g", "a", gang=Group(requests=(asking(1),) * 2), gated=frozenset({0, 1})),
            training("h", "a", gang=Group(requests=(asking(1),) * 2), gated=frozenset({1})),
            training("w", "a", 2, preemption_delay_s=500.0),
        ],
        {
            "g": "Gated, project=a, tasks=2",
            "h": "WaitsForGang, resource=tasks, requested=2, short=1, bound=1, project=a, tasks=2, there=1",
            "w": "Starting, project=a, workload=w, workload_uid=w, nodes=n",
        },
    ),
    (
        [
            node("n", 2),
            queue("a", 2),
            queue("b", 0),
            *running(training("x", "b", 2), "n", 0, 1),
            training("w", "a", 2, created_at=50.0, preemption_delay_s=500.0),
        ],
        {
            "w": "PreemptionDelayed, resource=gpu, requested=2000, short=2000, bound=2000, project=a, holders=b/x:2000+@1, until=550.0",
        },
    ),
]


def told(reason: Reason) -> str:
    parts = [str(reason.token)]
    for field in fields(Reason)[2:]:
        value = getattr(reason, field.name)
        if not value:
            continue
        if field.name == "nodes":
            value = " ".join(value)
        if field.name == "holders":
            value = " ".join(
                f"{h.project}/{h.uid}:{h.amount}{'+' if h.borrowed else ''}@{h.since:g}"
                for h in value
            )
        parts.append(f"{field.name}={value}")
    return ", ".join(parts)


@pytest.mark.parametrize(
    ("events", "expected"),
    CASES,
    ids=[
        "full, shares",
        "cpu short, two nodes",
        "memory short",
        "department",
        "limits",
        "gang scattered",
        "releasing",
        "reclaimed for",
        "two kinds in gang",
        "held",
        "mig",
        "extended",
        "topology",
        "elastic",
        "five of seven holders",
        "restricted to a node",
        "borrowing switched off",
        "on hold and gated",
        "delayed",
    ],
)
def test_every_field_of_every_reason(events: Sequence[Event], expected: dict[str, str]) -> None:
    assert {uid: told(reason) for uid, reason in reasons(*events).items()} == expected
