"""A pod needs what Kubernetes would count for it."""

from typing import Any

import pytest

from carrel_scheduler.core.requests import ANYWHERE, NodeConstraint
from carrel_scheduler.engines.kubernetes.pods.gpu_annotations import Share
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import (
    CLAIMED_GPUS,
    PodRequests,
    needs_of,
    request_of,
)
from unit.pods.making import container, pod

GI = 2**30


def init(cpu: str, *, sidecar: bool = False) -> dict[str, Any]:
    more = {"restartPolicy": "Always"} if sidecar else {}
    return container(requests={"cpu": cpu}, **more)


@pytest.mark.parametrize(
    ("inits", "main", "millicores"),
    [
        ([], ["500m", "250m"], 750),
        ([init("2")], ["500m"], 2000),
        ([init("100m"), init("300m")], ["200m"], 300),
        # A sidecar runs beside the containers, and beside the init containers after it only.
        ([init("100m", sidecar=True)], ["200m"], 300),
        ([init("1"), init("100m", sidecar=True)], ["200m"], 1000),
        ([init("100m", sidecar=True), init("1")], ["200m"], 1100),
        ([init("1", sidecar=True), init("1", sidecar=True)], ["100m"], 2100),
    ],
)
def test_init_containers_and_sidecars(
    inits: list[dict[str, Any]], main: list[str], millicores: int
) -> None:
    found = pod(initContainers=inits, containers=[container(requests={"cpu": cpu}) for cpu in main])
    assert needs_of(found).cpu_milli == millicores


def test_sums_are_rounded_once() -> None:
    thirds = [container(requests={"cpu": "333333333n"}) for _ in range(3)]
    assert needs_of(pod(containers=thirds)).cpu_milli == 1000


def test_what_the_pod_as_a_whole_asks_for_counts_instead_and_overhead_on_top() -> None:
    found = needs_of(
        pod(
            containers=[container(requests={"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"})],
            resources={"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "7"}},
            overhead={"cpu": "250m", "memory": "64Mi"},
        )
    )
    assert found == PodRequests(1250, GI + 64 * 2**20, gpus=2, gpu_resource="nvidia.com/gpu")


def test_a_limit_stands_for_the_request() -> None:
    limits = {"limits": {"amd.com/gpu": "1", "cpu": "2"}, "requests": {"cpu": "1"}}
    found = needs_of(pod(containers=[{"name": "main", "resources": limits}]))
    assert (found.cpu_milli, found.gpus, found.gpu_resource) == (1000, 1, "amd.com/gpu")


def test_other_resources_are_counted_by_name() -> None:
    asked = {
        "nvidia.com/mig-1g.10gb": "1",
        "ephemeral-storage": "1500M",
        "hugepages-2Mi": "4Mi",
        "rdma/hca": "1",
    }
    assert needs_of(pod(containers=[container(requests=asked)])).extended == (
        ("ephemeral-storage", 1431),
        ("hugepages-2Mi", 4),
        ("nvidia.com/mig-1g.10gb", 1),
        ("pods", 1),
        ("rdma/hca", 1),
    )


@pytest.mark.parametrize(
    ("annotations", "share"),
    [
        ({"carrel.dev/gpu-share": "0.5"}, Share(milli=500)),
        ({"gpu-fraction": "0.3333"}, Share(milli=334)),
        ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, Share(milli=250, devices=2)),
        ({"carrel.dev/gpu-memory": "10Gi"}, Share(memory_mib=10240)),
        ({"gpu-memory": "4096"}, Share(memory_mib=4096)),
        ({"gpu-memory": "4Gi", "carrel.dev/gpu-devices": "3"}, Share(memory_mib=4096, devices=3)),
    ],
)
def test_shares_of_gpus(annotations: dict[str, str], share: Share) -> None:
    found = needs_of(pod(annotations=annotations))
    assert found.share == share
    request = request_of(found, ANYWHERE)
    assert (request.share_milli, request.gpu_memory_mib, request.devices) == (
        share.milli,
        share.memory_mib,
        share.devices,
    )


@pytest.mark.parametrize(
    ("code", "annotations"),
    [
        ("bad_share", {"gpu-fraction": "1"}),
        ("bad_share", {"gpu-fraction": "0"}),
        ("bad_share", {"gpu-fraction": "half"}),
        ("bad_share", {"gpu-fraction": "nan"}),
        ("bad_share", {"gpu-memory": "0"}),
        ("bad_quantity", {"gpu-memory": "lots"}),
        ("bad_share", {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}),
        ("two_shares", {"gpu-fraction": "0.5", "gpu-memory": "100"}),
        ("share_and_gpus", {"gpu-fraction": "0.5", "gpus": "1"}),
    ],
)
def test_shares_that_mean_nothing_are_refused(code: str, annotations: dict[str, str]) -> None:
    asked = {"nvidia.com/gpu": "1"} if annotations.pop("gpus", "") else {}
    with pytest.raises(PodRefused) as refused:
        needs_of(pod(annotations=annotations, containers=[container(requests=asked)]))
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("annotations", "profile"),
    [
        ({"carrel.dev/mig-profile": "3g.40gb"}, "3g.40gb"),
        ({"carrel.dev/mig-profile": "1g.10gb.me"}, "1g.10gb+me"),
        ({"carrel.dev/mig-profile": "1g.10gb+me"}, "1g.10gb+me"),
        ({"nvidia.com/mig-3g.40gb": "1"}, "3g.40gb"),
        ({"nvidia.com/mig-3g.40gb": "1", "carrel.dev/mig-profile": "1g.10gb"}, "1g.10gb"),
        ({"nvidia.com/mig-parted": "all-balanced"}, ""),
    ],
)
def test_mig_instances_by_annotation(annotations: dict[str, str], profile: str) -> None:
    found = needs_of(pod(annotations=annotations))
    request = request_of(found, ANYWHERE)
    assert (request.mig_profile, request.gpus, request.counted_milli) == (profile, 0, 0)


def test_who_asks_for_a_nodes_own_instance_gets_that_one() -> None:
    own = [container(requests={"nvidia.com/mig-3g.40gb": "1"})]
    found = needs_of(pod(annotations={"nvidia.com/mig-3g.40gb": "1"}, containers=own))
    assert (found.mig_profile, request_of(found, ANYWHERE).counted_milli) == ("", 500)


@pytest.mark.parametrize(
    ("code", "annotations", "asked"),
    [
        ("bad_mig_profile", {"carrel.dev/mig-profile": "half"}, {}),
        ("bad_mig_profile", {"carrel.dev/mig-profile": ""}, {}),
        ("bad_mig_profile", {"carrel.dev/mig-profile": "3g.40gb,1g.10gb"}, {}),
        ("bad_mig_profile", {"nvidia.com/mig-1g.10gb": "2"}, {}),
        ("two_instances", {"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-2g.20gb": "1"}, {}),
        ("two_instances", {"carrel.dev/mig-profile": "1g.10gb"}, {"nvidia.com/mig-1g.10gb": "1"}),
        ("mig_and_gpus", {"carrel.dev/mig-profile": "1g.10gb"}, {"nvidia.com/gpu": "1"}),
        ("mig_and_share", {"carrel.dev/mig-profile": "1g.10gb", "gpu-fraction": "0.5"}, {}),
        ("mig_and_share", {"nvidia.com/mig-1g.10gb": "1", "gpu-memory": "100"}, {}),
    ],
)
def test_instances_that_mean_nothing_are_refused(
    code: str, annotations: dict[str, str], asked: dict[str, str]
) -> None:
    with pytest.raises(PodRefused) as refused:
        needs_of(pod(annotations=annotations, containers=[container(requests=asked)]))
    assert refused.value.code == code
    assert refused.value.value not in (None, code)
    assert refused.value.expected


def test_two_kinds_of_gpu_are_refused() -> None:
    with pytest.raises(PodRefused, match="two_kinds_of_gpu"):
        needs_of(pod(containers=[container(requests={"nvidia.com/gpu": "1", "amd.com/gpu": "1"})]))


def test_gpus_of_claims_count_and_no_others_beside_them() -> None:
    found = needs_of(pod(), 2)
    assert (found.gpus, found.gpu_resource) == (2, CLAIMED_GPUS)
    assert request_of(found, ANYWHERE).gpus == 2
    with pytest.raises(PodRefused, match="two_kinds_of_gpu"):
        needs_of(pod(containers=[container(requests={"nvidia.com/gpu": "1"})]), 1)
    with pytest.raises(PodRefused, match="share_and_gpus"):
        needs_of(pod(annotations={"gpu-fraction": "0.5"}), 1)


def test_requests_that_differ_by_little_are_one_class() -> None:
    where = NodeConstraint(labels=(("zone", frozenset({"a"})),))
    requests = {
        request_of(PodRequests(cpu_milli=cpu, memory_bytes=size), where)
        for cpu, size in ((991, 2 * GI - 5), (1000, 2 * GI), (995, 2 * GI - 2**20))
    }
    assert len(requests) == 1
    (request,) = requests
    assert (request.cpu_milli, request.memory_mib, request.where) == (1000, 2048, where)
    assert request_of(PodRequests(memory_bytes=100 * 2**20 + 1), where).memory_mib == 101
