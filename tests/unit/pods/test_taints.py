"""Taints keep away whom Kubernetes would keep away."""

import itertools

import pytest

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.requests import NodeConstraint
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.kubernetes.pods.selectors import (
    core_taint,
    hard,
    tolerated,
    tolerations_of,
)
from carrel_scheduler.engines.kubernetes.pods.types import Taint, Toleration

TAINTS = [
    Taint("gpu", "", "NoSchedule"),
    Taint("gpu", "h100", "NoSchedule"),
    Taint("gpu", "h100", "NoExecute"),
    Taint("size", "8", "NoSchedule"),
    Taint("soft", "x", "PreferNoSchedule"),
]
TOLERATIONS = [
    Toleration(operator="Exists"),
    Toleration(operator="Exists", effect="NoSchedule"),
    Toleration("gpu", "Exists"),
    Toleration("gpu", "Exists", effect="NoExecute"),
    Toleration("gpu"),
    Toleration("gpu", value="h100"),
    Toleration("gpu", value="h100", effect="NoSchedule"),
    Toleration("size", "Gt", "4"),
    Toleration("size", "Lt", "4"),
    Toleration("size", "Gt", "four"),
    Toleration(value="h100"),
]


def admitted(state: Columns, tolerations: frozenset[str]) -> bool:
    return bool(state.eligible.mask(NodeConstraint(tolerations=tolerations)).any())


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_core_admits_whom_kubernetes_admits(count: int) -> None:
    for taints in itertools.combinations(TAINTS, 2):
        state = State()
        says = frozenset(core_taint(taint) for taint in hard(taints))
        state.apply(NodeSet("n", 0, 1000, 1024, taints=says))
        for tolerations in itertools.combinations(TOLERATIONS, count):
            expected = all(
                tolerated(tolerations, taint)
                for taint in taints
                if taint.effect != "PreferNoSchedule"
            )
            found = tolerations_of(tolerations, TAINTS)
            assert admitted(state, found) is expected, (taints, tolerations)
