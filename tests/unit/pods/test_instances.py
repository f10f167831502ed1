"""MIG instances by name, and shares of GPUs."""

import pytest

from carrel_scheduler.core.requests import GPU_RESOURCE
from carrel_scheduler.engines.kubernetes.pods.nodes import UnmanagedUse, node_set
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.mig_resources import held_milli, milli_of
from carrel_scheduler.workloads.state import shape
from carrel_schema.objects import Resources, WorkloadSpec
from unit.pods.making import container, node, pod


@pytest.mark.parametrize(
    ("resource", "milli"),
    [
        ("nvidia.com/mig-7g.80gb", 1000),
        ("nvidia.com/mig-3g.40gb", 500),
        ("nvidia.com/mig-1g.10gb", 125),
        ("nvidia.com/mig-1g.10gb.me", 125),
        ("nvidia.com/mig-1c.3g.40gb", 167),
        ("nvidia.com/mig-2g.999gb", 250),
        ("nvidia.com/mig-9g.999gb", 1000),
        ("nvidia.com/gpu", 0),
        ("rdma/hca", 0),
    ],
)
def test_an_instance_is_its_part_of_a_gpu(resource: str, milli: int) -> None:
    assert milli_of(resource) == milli


def test_several_count_together() -> None:
    assert held_milli((("nvidia.com/mig-1g.10gb", 2), ("pods", 1), ("rdma/hca", 3))) == 250


def test_a_pod_counts_as_the_parts_that_it_asks_for() -> None:
    asked = pod(containers=[container(requests={"nvidia.com/mig-3g.40gb": "1"})] * 2)
    places = PlacementConstraints()
    places.set_node(node())
    request = places.ask(asked).request
    assert (request.gpus, request.counted_milli) == (0, 1000)
    assert ("nvidia.com/mig-3g.40gb", 2) in request.extended


def test_a_node_counts_as_the_parts_that_strangers_leave() -> None:
    offered = {"cpu": "8", "nvidia.com/gpu": "2", "nvidia.com/mig-1g.10gb": "7"}
    found = node(allocatable=offered)
    assert (node_set(found).devices, node_set(found).counted_milli) == (2, 875)
    strangers = UnmanagedUse()
    taken = [container(requests={"nvidia.com/mig-1g.10gb": "3"})]
    strangers.put(pod(node="n", phase="Running", containers=taken))
    told = node_set(found, strangers.of("n"))
    assert told.counted_milli == 500
    assert ("nvidia.com/mig-1g.10gb", 4) in told.extended


def test_our_own_work_asks_for_one_by_its_profile() -> None:
    spec = WorkloadSpec(resources=Resources(mig_profile="1g.10gb"), tasks=2)
    request = shape.request_of(spec)
    assert request.extended == (("nvidia.com/mig-1g.10gb", 1),)
    assert (request.gpus, request.counted_milli) == (0, 125)
    assert shape.held_by(spec, (0, 1)).gpu_milli == 250
    assert shape.request_of(WorkloadSpec()).extended == ()


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({"carrel.dev/gpu-share": "0.5"}, (500, 0, 1)),
        ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, (250, 0, 2)),
        ({"gpu-memory": "2048"}, (0, 2048, 1)),
    ],
)
def test_a_share_goes_to_gpus_of_nvidia(
    annotations: dict[str, str], asked: tuple[int, int, int]
) -> None:
    places = PlacementConstraints()
    places.set_node(node())
    request = places.ask(pod(annotations=annotations)).request
    assert (request.share_milli, request.gpu_memory_mib, request.devices) == asked
    assert request.where.labels == ()
    places.set_node(node("n1", allocatable={"nvidia.com/gpu": "8"}))
    places.set_node(node("n2", allocatable={"amd.com/gpu": "8"}))
    request = places.ask(pod(annotations=annotations)).request
    assert (GPU_RESOURCE, frozenset({"nvidia.com/gpu"})) in request.where.labels
