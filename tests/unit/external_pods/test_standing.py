"""A gang that others made lies where it has to; who preempts nobody makes nobody give way."""

import msgspec
import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.requests import HOST
from carrel_scheduler.core.resources import ResourceVector
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.external import ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    ExternalPodSeen,
    NodeSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import ExternalPod, PodRef
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole, Grouping
from carrel_scheduler.engines.kubernetes.pods.types import Node
from unit.external_pods.world import pod

ROLES = (GangRole("master", 1), GangRole("worker", 1))


def node(name: str, rack: str, gpus: str) -> NodeSeen:
    amounts = {"nvidia.com/gpu": gpus, "cpu": "64", "memory": "256Gi", "pods": "110"}
    meta = {"name": name, "labels": {"rack": rack}}
    return NodeSeen(msgspec.convert({"metadata": meta, "status": {"allocatable": amounts}}, Node))


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (Level(required="rack"), {"b-1", "b-2"}),
        (Level(required=HOST), set()),
        (Level(preferred="rack"), {"b-1", "b-2"}),
    ],
)
def test_a_gang_lies_together(level: Level, expected: set[str]) -> None:
    state = State()
    reconciler = ExternalPodReconciler(ReconcilerAccess(state, lambda _: None, lambda _: None))
    state.apply(QueueSet("a", ResourceVector(8_000, 64_000, 256 * 1024)))
    structure = Group("job", groups=tuple(Group(role.name) for role in ROLES), level=level)
    grouping = Grouping("job", "job", "a", roles=ROLES, structure=structure)
    pods = [
        ExternalPodSeen(
            ExternalPod(PodRef("carrel-a", name, f"uid-{name}"), grouping, pod(name), role=name)
        )
        for name in ("master", "worker")
    ]
    nodes = [node("a-1", "a", "1"), node("b-1", "b", "1"), node("b-2", "b", "1")]
    reconciler.handle([*nodes, *pods, AllReconciled()], 1.0)
    reconciler.reconcile(1.0)
    assert {binding.node for binding in decide(state, 1.0).bindings} == expected


@pytest.mark.parametrize(("delay", "evicted"), [(0.0, 1), (1e9, 0)])
def test_who_preempts_nobody_waits_for_room(delay: float, evicted: int) -> None:
    state = State()
    reconciler = ExternalPodReconciler(ReconcilerAccess(state, lambda _: None, lambda _: None))
    state.apply(QueueSet("a", ResourceVector(1_000, 64_000, 256 * 1024)))
    first = Grouping("low", "low", "a", priority=10)
    reconciler.handle([node("n", "a", "1"), single(first, "low", "n"), AllReconciled()], 1.0)
    reconciler.reconcile(1.0)
    high = Grouping("high", "high", "a", priority=90, preemption_delay_s=delay)
    reconciler.handle([single(high, "high")], 2.0)
    reconciler.reconcile(2.0)
    assert len(decide(state, 2.0).evictions) == evicted


def single(grouping: Grouping, name: str, at: str = "") -> ExternalPodSeen:
    """A pod for itself, on a node or waiting."""
    one = pod(name, nodeName=at) if at else pod(name)
    return ExternalPodSeen(
        ExternalPod(PodRef("carrel-a", name, f"uid-{name}"), grouping, one, node=at)
    )
