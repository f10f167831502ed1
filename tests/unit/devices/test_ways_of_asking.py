"""Claims for all devices of a node, for unlike ones, and for those that administrators look at."""

from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.orders import AllocateClaim
from unit.devices.making_devices import (
    NIC,
    cel,
    claim,
    claiming,
    device,
    device_class,
    device_slice,
    gpus,
    request,
)
from unit.devices.test_claims import cluster, given, open_to

ROOT = "resource.kubernetes.io/pcieRoot"
EVERY = request(allocationMode="All", count=0)
ADMIN = request(adminAccess=True)


def asked(devices: DeviceClaims, *requests: dict[str, Any], **more: Any) -> Any:
    """A pod ``p`` with a claim for these."""
    devices.set_claim(claim("c", *requests, **more))
    return claiming("p", "c")


def taken(devices: DeviceClaims, *names: str, node: str = "n0") -> None:
    devices.set_claim(claim(f"of-{node}", given=names, node=node, users=("somebody",)))


def test_all_devices_of_a_node_are_given_once_none_of_them_is_in_use() -> None:
    devices = cluster(gpus("n0", 3))
    of = asked(devices, EVERY)
    assert (devices.access(of).gpus, open_to(devices, of)) == (3, {"n0"})
    taken(devices, "gpu-1")
    assert given(devices, of, "n0", 3) == []
    taken(devices)
    assert sorted(given(devices, of, "n0", 3)) == ["gpu-0", "gpu-1", "gpu-2"]
    assert {use.id[2] for use in devices.uses("n0")} == {"gpu-0", "gpu-1", "gpu-2"}


def test_all_are_those_that_are_selected_and_at_least_one() -> None:
    devices = cluster(device_slice("n0", device("gpu-0"), device("gpu-1", "H100")), gpus("n1", 1))
    h100 = cel('device.attributes["gpu.nvidia.com"].productName == "NVIDIA H100"')
    of = asked(devices, {**EVERY, "exactly": {**EVERY["exactly"], "selectors": h100}})
    taken(devices, "gpu-0")
    assert open_to(devices, of) == {"n0"}
    assert given(devices, of, "n0", 1) == ["gpu-1"]


def test_of_nodes_with_unlike_numbers_those_with_most_are_asked_for_all() -> None:
    devices = cluster(gpus("n0", 2), gpus("n1", 4), gpus("n2", 4))
    of = asked(devices, EVERY)
    assert (devices.access(of).gpus, open_to(devices, of)) == (4, {"n1", "n2"})
    for node in ("n1", "n2"):
        taken(devices, "gpu-0", node=node)
    assert (devices.access(of).gpus, open_to(devices, of)) == (2, {"n0"})


def test_all_with_a_taint_that_is_not_tolerated_are_not_given() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    devices = cluster(device_slice("n0", device("gpu-0"), device("gpu-1", taints=[taint])))
    assert open_to(devices, asked(devices, EVERY)) == set()


def test_more_than_a_claim_may_have_are_not_all_given() -> None:
    nics = [{"name": f"nic-{number}"} for number in range(33)]
    devices = cluster(device_slice("n0", *nics, driver=NIC))
    devices.set_class(device_class(NIC, NIC))
    every = request(allocationMode="All", count=0, deviceClassName=NIC)
    assert open_to(devices, asked(devices, every)) == set()


def test_an_administrator_looks_at_devices_that_others_have_and_takes_nothing() -> None:
    devices = cluster(gpus("n0", 1))
    taken(devices, "gpu-0")
    of = asked(devices, ADMIN)
    found = devices.access(of)
    assert (found.gpus, found.parts_milli, found.nodes) == (0, 0, frozenset({"n0"}))
    [order] = devices.decide(of, "n0", 0)
    assert results(order) == [("gpu-0", True)]
    assert [use.id[2] for use in devices.uses("n0")] == ["gpu-0"], "the other one's"
    devices.set_claim(claim("d"))
    taken(devices)
    assert given(devices, claiming("q", "d"), "n0") == ["gpu-0"], "it is in nobody's way"


def test_an_administrator_looks_at_all_and_at_each_once() -> None:
    devices = cluster(gpus("n0", 2))
    taken(devices, "gpu-0")
    every = request(adminAccess=True, allocationMode="All", count=0)
    [order] = devices.decide(asked(devices, every), "n0", 0)
    assert results(order) == [("gpu-0", True), ("gpu-1", True)]
    devices = cluster(gpus("n0", 2))
    assert open_to(devices, asked(devices, request(adminAccess=True, count=3))) == set()


def test_an_administrator_has_no_share_of_a_shared_device() -> None:
    devices = cluster(device_slice("n0", device("gpu-0", allowMultipleAllocations=True)))
    [order] = devices.decide(asked(devices, ADMIN), "n0", 0)
    [result] = order.allocation["devices"]["results"]
    assert (result["adminAccess"], "shareID" in result, "consumedCapacity" in result) == (
        True,
        False,
        False,
    )


def test_one_claim_may_look_at_devices_and_have_some() -> None:
    devices = cluster(gpus("n0", 1))
    of = asked(devices, request("own"), request("look", adminAccess=True))
    assert devices.access(of).gpus == 1
    [order] = devices.decide(of, "n0", 1)
    assert sorted(results(order)) == [("gpu-0", False), ("gpu-0", True)]


def results(order: AllocateClaim) -> list[tuple[str, bool]]:
    found = order.allocation["devices"]["results"]
    return [(one["device"], one.get("adminAccess", False)) for one in found]


@pytest.mark.parametrize(("count", "right"), [(2, True), (3, False)])
def test_devices_of_a_claim_differ_where_it_says_so(count: int, *, right: bool) -> None:
    devices = cluster(gpus("n0", 4))  # two on each root
    of = asked(devices, request(count=count), constraints=[{"distinctAttribute": ROOT}])
    assert (open_to(devices, of) == {"n0"}) is right
    found = given(devices, of, "n0", count)
    assert len({int(name[-1]) // 2 for name in found}) == (count if right else 0)


def test_requests_that_the_constraint_does_not_name_need_not_differ() -> None:
    devices = cluster(gpus("n0", 4))
    limited = [{"requests": ["a", "b"], "distinctAttribute": ROOT}]
    of = asked(devices, request("a"), request("b"), request("c", count=2), constraints=limited)
    assert len(given(devices, of, "n0", 4)) == 4


def test_a_device_without_the_attribute_is_none_of_those_that_differ() -> None:
    bare = device("gpu-0")
    del bare["attributes"][ROOT]
    devices = cluster(device_slice("n0", bare, device("gpu-2")))
    of = asked(devices, request(count=1), constraints=[{"distinctAttribute": ROOT}])
    assert given(devices, of, "n0", 1) == ["gpu-2"]


def test_shares_that_have_to_differ_are_of_several_devices() -> None:
    shared = [device(f"gpu-{one}", allowMultipleAllocations=True) for one in (0, 2)]
    devices = cluster(device_slice("n0", *shared))
    part = request(count=2, capacity={"requests": {"memory": "10Gi"}})
    of = asked(devices, part, constraints=[{"distinctAttribute": ROOT}])
    assert sorted(given(devices, of, "n0", 0)) == ["gpu-0", "gpu-2"]
