"""A node is to the core what Kubernetes says of it, less what others use."""

import pytest

from carrel_scheduler.core.requests import IN_GROUP
from carrel_scheduler.engines.gpu_models import UNGROUPED
from carrel_scheduler.engines.kubernetes.pods.nodes import (
    CPU_WORKER,
    GPU_WORKER,
    UnmanagedUse,
    gpu_model,
    node_set,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import Node
from carrel_schema.names import NODE_GROUP
from unit.pods.making import container, node, pod

GPUS = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8", "rdma/hca": "4"}


def gpu_node(**labels: str) -> Node:
    return node(allocatable=GPUS, labels=labels)


def test_what_it_offers() -> None:
    labels = {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.product": "H100", "zone": "a"}
    found = node_set(node(allocatable=GPUS, labels=labels))
    assert (found.devices, found.cpu_milli, found.memory_mib) == (8, 64_000, 256 * 1024)
    assert found.extended == (("pods", 110), ("rdma/hca", 4))
    assert found.gpu_memory_mib == 81559
    assert (found.schedulable, found.draining, found.broken_devices) == (True, False, frozenset())
    assert dict(found.labels)["zone"] == "a"
    assert gpu_model(node(labels=labels)) == "H100"


def test_what_others_use_is_not_offered() -> None:
    use = UnmanagedUse()
    asked = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"}
    theirs = pod("theirs", node="n", containers=[container(requests=asked)])
    assert use.put(theirs) == {"n"}
    assert use.put(theirs) == set()
    found = node_set(gpu_node(), use.of("n"), taken=(7,))
    assert (found.cpu_milli, found.memory_mib) == (62_500, 255 * 1024)
    assert dict(found.extended)["pods"] == 109
    assert found.devices == 8
    assert found.broken_devices == {5, 6}


def test_what_holds_a_gpu_for_others_counts_as_theirs() -> None:
    use = UnmanagedUse()
    asked = {"cpu": "10m", "nvidia.com/gpu": "1"}
    holds = [container(requests=asked)]
    marks = {"carrel.dev/gpu-index": "3"}
    space = "gpu-reservations-carrel"
    use.put(pod("gpu-3", namespace=space, labels=marks, node="n", containers=holds))
    assert node_set(gpu_node(), use.of("n")).broken_devices == frozenset()
    assert node_set(gpu_node(), use.of("n")).cpu_milli == 63_990
    use.put(pod("gpu-4", namespace="elsewhere", labels=marks, node="n", containers=holds))
    assert node_set(gpu_node(), use.of("n")).broken_devices == {7}


def test_they_use_it_until_they_ended_wherever_they_went() -> None:
    use = UnmanagedUse()
    use.put(pod("theirs", node="n", deleted=True))
    assert use.of("n")
    assert use.put(pod("theirs", node="m")) == {"n", "m"}
    assert not use.of("n")
    assert use.put(pod("theirs", node="m", phase="Succeeded")) == {"m"}
    assert not use.of("m")
    assert use.drop("never heard of") == set()


def test_a_pod_of_others_that_nobody_understands_is_one_pod() -> None:
    use = UnmanagedUse()
    use.put(pod("odd", node="n", containers=[container(requests={"cpu": "much"})]))
    assert dict(use.of("n")) == {"pods": 10**9}


def test_devices_that_are_out_stay_the_same_while_that_is_right() -> None:
    used = {"nvidia.com/gpu": 2 * 10**9}
    assert node_set(gpu_node(), used, before={0, 1}).broken_devices == {0, 1}
    assert node_set(gpu_node(), used, before={0, 1}, taken={0}).broken_devices == {1, 7}
    one = {"nvidia.com/gpu": 10**9}
    assert node_set(gpu_node(), one, before={2, 5}).broken_devices == {5}


def test_gpus_that_are_not_healthy_are_out() -> None:
    found = node_set(node(allocatable={**GPUS, "nvidia.com/gpu": "6"}, capacity=GPUS))
    assert (found.devices, found.broken_devices) == (8, frozenset({6, 7}))


def test_devices_in_use_are_never_left_out() -> None:
    found = node_set(node(allocatable={"cpu": "1", "nvidia.com/gpu": "1"}), taken={3})
    assert (found.devices, found.broken_devices) == (4, frozenset({0, 1, 2}))
    none = node_set(node(allocatable={"cpu": "1"}), taken={1})
    assert (none.devices, none.broken_devices) == (2, frozenset({0}))


def test_who_uses_more_than_there_is_leaves_nothing() -> None:
    found = node_set(node(), {"cpu": 10**12, "pods": 10**15})
    assert (found.cpu_milli, dict(found.extended)["pods"]) == (0, 0)


@pytest.mark.parametrize(
    "closed",
    [
        node(unschedulable=True),
        node(ready="False"),
        node(ready="Unknown"),
        node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]),
        node(taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
    ],
)
def test_a_node_that_is_not_in_order_is_closed_and_asks_for_no_toleration(closed: Node) -> None:
    found = node_set(closed)
    assert not found.schedulable
    assert not found.taints


def test_a_node_without_conditions_is_in_order() -> None:
    assert node_set(Node(metadata=node().metadata)).schedulable


def test_draining_is_asked_for_by_an_annotation() -> None:
    assert node_set(node(annotations={"carrel.dev/drain": "maintenance"})).draining
    assert not node_set(node(annotations={"carrel.dev/drain": "false"})).draining


def test_groups_and_roles_are_told_alike_whoever_wrote_them() -> None:
    theirs = node(labels={"run.ai/type": "dgx-2", "node-role.kubernetes.io/runai-gpu-worker": ""})
    assert dict(node_set(theirs).labels)[NODE_GROUP] == "dgx-2"
    assert dict(node_set(theirs).labels)[GPU_WORKER] == "yes"
    assert CPU_WORKER not in dict(node_set(theirs).labels)
    assert dict(node_set(theirs, group="fast").labels)[NODE_GROUP] == "fast"
    assert dict(node_set(theirs).labels)[IN_GROUP] == "dgx-2"
    alone = dict(node_set(node()).labels)
    assert (alone[IN_GROUP], NODE_GROUP in alone) == (UNGROUPED, False)
    ours = node(labels={"run.ai/type": "dgx-2", NODE_GROUP: "ours", CPU_WORKER: "true"})
    assert dict(node_set(ours).labels)[NODE_GROUP] == "ours"
    assert dict(node_set(ours).labels)[CPU_WORKER] == "yes"


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(PodRefused, match="bad_quantity"):
        node_set(node(allocatable={"cpu": "many"}))


def test_memory_of_gpus_of_other_vendors() -> None:
    assert node_set(node(labels={"amd.com/gpu.vram": "64G"})).gpu_memory_mib == 61035
    assert node_set(node(labels={"nvidia.com/gpu.memory": "unknown"})).gpu_memory_mib == 0
