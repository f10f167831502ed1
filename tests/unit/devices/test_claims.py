"""What pods with claims for devices wait for, where they can go, and which devices they get."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.orders import ReleaseClaim
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import CLAIMED_GPUS
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from unit.devices.making_devices import (
    DRIVER,
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
from unit.pods.making import node, pod

A100 = 'device.attributes["gpu.nvidia.com"].productName == "NVIDIA A100"'
H100 = 'device.attributes["gpu.nvidia.com"].productName == "NVIDIA H100"'


def cluster(*slices: Any) -> DeviceClaims:
    """Two nodes with two GPUs each, unless told otherwise."""
    devices = DeviceClaims()
    devices.set_class(device_class())
    for one in slices or (gpus("n0", 2), gpus("n1", 2)):
        devices.inventory.set_slice(one)
    return devices


def waits(devices: DeviceClaims, of: Pod) -> str:
    return devices.access(of).waits


def open_to(devices: DeviceClaims, of: Pod) -> set[str] | None:
    """The nodes where a pod may go."""
    nodes = devices.access(of).nodes
    return None if nodes is None else set(nodes)


def given(devices: DeviceClaims, of: Pod, where: str, count: int = 1) -> list[str]:
    """The devices that a pod gets."""
    orders = devices.decide(of, where, count)
    return [one["device"] for o in orders for one in o.allocation["devices"]["results"]]


def test_a_pod_goes_where_its_devices_are_free_and_is_counted_for_them() -> None:
    devices = cluster(gpus("n0", 2), gpus("n1", 1))
    devices.set_claim(claim("c", request(count=2)))
    found = devices.access(claiming("p", "c"))
    assert (found.gpus, found.nodes, found.waits) == (2, frozenset({"n0"}), "")
    assert open_to(devices, pod("plain")) is None


def test_what_a_pod_waits_for_is_said() -> None:
    devices = cluster()
    of = claiming("p", "c")
    assert waits(devices, of) == "its resource claim `c` does not exist"
    devices.set_claim(claim(deleted=True))
    assert waits(devices, of) == "its resource claim `c` is being deleted"
    devices.set_claim(claim("c", request(deviceClassName="none")))
    assert waits(devices, of) == "the device class `none` of its resource claim `c` does not exist"
    devices.set_claim(claim(users=("other",)))
    assert "is in use by the pod `other`; a claim serves one pod at a time" in waits(devices, of)
    devices.drop_claim(claim())
    assert waits(devices, of) == "its resource claim `c` does not exist"


def test_a_claim_of_another_namespace_is_nobodys() -> None:
    devices = cluster()
    devices.set_claim(claim(namespace="carrel-b"))
    assert waits(devices, claiming("p", "c")) == "its resource claim `c` does not exist"


def test_a_claim_that_a_template_made_belongs_to_its_pod_only() -> None:
    devices = cluster()
    uses = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    of = pod("p", namespace="carrel-a", resourceClaims=uses)
    said = "its resource claim `gpu` is not made from the template `one` yet"
    assert waits(devices, of) == said
    made = msgspec.convert(
        {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]},
        type=type(of.status),
    )
    of = msgspec.structs.replace(of, status=made)
    devices.set_claim(claim("p-gpu", owner="another"))
    assert waits(devices, of) == "its resource claim `p-gpu` was made for somebody else"
    devices.set_claim(claim("p-gpu", owner=of.metadata.uid))
    assert devices.access(of).gpus == 1
    assert given(devices, of, "n0") == ["gpu-0"]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (request(allocationMode="Some"), "allocationMode"),
        (request(capacity={"requests": {"memory": "a lot"}}), "capacity.requests[memory]"),
        (request(count=33), "count"),
        (request(count=0), "count"),
        ({"name": "gpu"}, "gpu"),
        (request(selectors=cel("[1].all(x, true)")), "expression"),
    ],
)
def test_what_is_not_given_out_is_refused_with_its_field(asked: dict[str, Any], named: str) -> None:
    devices = cluster()
    devices.set_claim(claim("c", asked))
    with pytest.raises(PodRefused) as refused:
        devices.access(claiming("p", "c"))
    assert named in refused.value.field


def test_claims_of_a_pod_together_are_bounded() -> None:
    devices = cluster()
    for name in ("a", "b"):
        devices.set_claim(claim(name, request(count=20)))
    with pytest.raises(PodRefused, match="32 devices together"):
        devices.access(claiming("p", "a", "b"))


def test_no_device_is_given_twice() -> None:
    devices = cluster(gpus("n0", 2))
    for name in ("a", "b", "c"):
        devices.set_claim(claim(name))
    assert given(devices, claiming("p", "a"), "n0") == ["gpu-0"]
    devices.set_claim(claim("foreign", given=("gpu-1",), users=("x",), namespace="elsewhere"))
    assert given(devices, claiming("q", "b"), "n0") == []
    devices.undo("carrel-a/p")
    assert given(devices, claiming("q", "b"), "n0") == ["gpu-0"]
    # what its status says counts from then on, whatever becomes of the decision
    devices.set_claim(claim("b", given=("gpu-0",), users=("carrel-a/q",)))
    devices.undo("carrel-a/q")
    assert given(devices, claiming("r", "c"), "n0") == []
    devices.drop_claim(claim("b"))
    assert given(devices, claiming("r", "c"), "n0") == ["gpu-0"]


def test_a_claim_of_two_pods_serves_the_first() -> None:
    devices = cluster()
    devices.set_claim(claim())
    assert given(devices, claiming("p", "c"), "n0") == ["gpu-0"]
    assert "is in use by another pod" in waits(devices, claiming("q", "c"))
    assert given(devices, claiming("q", "c"), "n1") == []
    devices.set_claim(claim(given=("gpu-0",), users=("carrel-a/p",)))
    assert "is in use by the pod `carrel-a/p`" in waits(devices, claiming("q", "c"))


def test_one_claim_used_twice_by_a_pod_gets_its_devices_once() -> None:
    devices = cluster()
    devices.set_claim(claim())
    uses = [{"name": name, "resourceClaimName": "c"} for name in ("one", "two")]
    with pytest.raises(PodRefused, match="once"):
        devices.access(pod("p", namespace="carrel-a", resourceClaims=uses))


def test_an_allocation_to_a_pod_that_is_not_bound_is_released_first() -> None:
    devices = cluster()
    left = claim(given=("gpu-0",), node="n1", users=("carrel-a/p",), version="7")
    devices.set_claim(left)
    assert "are being released" in waits(devices, claiming("p", "c"))
    assert list(devices.releases.values()) == [ReleaseClaim("carrel-a", "c", "7")]
    devices.set_claim(claim(version="8"))
    assert not devices.releases
    assert open_to(devices, claiming("p", "c")) == {"n0", "n1"}


def test_selectors_choose_among_the_devices_of_a_node_whatever_the_order() -> None:
    mixed = device_slice("n0", device("gpu-0", "H100"), device("gpu-1", "A100"))
    devices = cluster(mixed)
    devices.set_claim(
        claim("c", request("any"), request("choosy", selectors=cel(H100))),
    )
    orders = devices.decide(claiming("p", "c"), "n0", 2)
    got = {one["request"]: one["device"] for one in orders[0].allocation["devices"]["results"]}
    assert got == {"any": "gpu-1", "choosy": "gpu-0"}


def test_a_node_with_other_gpus_free_than_asked_for_is_left_out_one_that_is_full_is_not() -> None:
    devices = cluster(
        device_slice("n0", device("gpu-0", "H100"), device("gpu-1", "A100")), gpus("n1", 1)
    )
    devices.set_claim(claim("c", request(selectors=cel(H100))))
    of = claiming("p", "c")
    assert open_to(devices, of) == {"n0"}
    devices.set_claim(claim("x", given=("gpu-0",), users=("x",)))
    assert open_to(devices, of) == set()
    devices.set_claim(claim("y", given=("gpu-1",), users=("y",)))
    assert open_to(devices, of) == {"n0"}  # the core may have others give way there
    assert given(devices, of, "n0") == []


def test_devices_of_a_claim_agree_where_it_says_so() -> None:
    devices = cluster(gpus("n0", 4))
    name = "resource.kubernetes.io/pcieRoot"
    together = [{"requests": ["gpu"], "matchAttribute": name}]
    devices.set_claim(claim("x", given=("gpu-0",), users=("x",)))
    devices.set_claim(claim("c", request(count=2), constraints=together))
    assert sorted(given(devices, claiming("p", "c"), "n0", 2)) == ["gpu-2", "gpu-3"]
    devices.set_claim(claim("d", request(count=3), constraints=together))
    assert open_to(devices, claiming("q", "d")) == set()


def test_of_alternatives_the_first_that_is_free_is_taken_and_counted() -> None:
    devices = cluster(
        device_slice("n0", device("gpu-0", "H100")),
        device_slice("n1", device("gpu-0"), device("gpu-1")),
    )
    first = [
        {"name": "large", "deviceClassName": DRIVER, "selectors": cel(H100)},
        {"name": "small", "deviceClassName": DRIVER, "count": 2, "selectors": cel(A100)},
    ]
    devices.set_claim(claim("c", {"name": "gpu", "firstAvailable": first}))
    of = claiming("p", "c")
    assert (devices.access(of).gpus, open_to(devices, of)) == (1, {"n0"})
    devices.set_claim(claim("x", given=("gpu-0",), users=("x",)))
    assert (devices.access(of).gpus, open_to(devices, of)) == (2, {"n1"})
    assert devices.decide(of, "n1", 1) == ()  # no more GPUs than were counted
    [order] = devices.decide(of, "n1", 2)
    assert {one["request"] for one in order.allocation["devices"]["results"]} == {"gpu/small"}


def test_other_devices_are_given_too_but_count_as_no_gpus() -> None:
    devices = cluster(gpus("n0", 1), gpus("n1", 1), device_slice("n1", device("nic-0"), driver=NIC))
    devices.set_class(device_class("nic", NIC))
    devices.set_claim(claim("c", request(), request("nic", deviceClassName="nic")))
    of = claiming("p", "c")
    assert (devices.access(of).gpus, open_to(devices, of)) == (1, {"n1"})
    assert given(devices, of, "n1") == ["gpu-0", "nic-0"]


def test_tainted_devices_are_for_requests_that_tolerate_them() -> None:
    taint = {"key": "old", "value": "", "effect": "NoSchedule"}
    devices = cluster(device_slice("n0", device("gpu-0", taints=[taint])))
    devices.set_claim(claim())
    assert open_to(devices, claiming("p", "c")) == set()
    devices.set_claim(claim("d", request(tolerations=[{"key": "old", "operator": "Exists"}])))
    [order] = devices.decide(claiming("q", "d"), "n0", 1)
    assert order.allocation["devices"]["results"][0]["tolerations"]


def test_an_allocation_names_devices_node_and_configuration() -> None:
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"sharing": "none"}}}
    devices = cluster()
    devices.set_class(device_class(config=[opaque]))
    devices.set_claim(claim(config=[{"requests": ["gpu"], **opaque}]))
    [order] = devices.decide(claiming("p", "c"), "n1", 1)
    assert (order.claim, order.claim_uid, order.pod_uid) == ("c", "uid-c", "carrel-a/p")
    assert order.allocation == {
        "devices": {
            "results": [{"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}],
            "config": [
                {"source": "FromClass", "requests": ["gpu"], **opaque},
                {"source": "FromClaim", "requests": ["gpu"], **opaque},
            ],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ]
        },
    }


def test_a_bound_pod_counts_for_what_its_claims_were_given() -> None:
    devices = cluster()
    devices.set_claim(claim("c", request(count=2), given=("gpu-0", "gpu-1"), users=("carrel-a/p",)))
    assert devices.access(claiming("p", "c", node="n0")).gpus == 2


def test_a_nodes_gpus_are_those_of_its_slices_unless_a_device_plugin_offers_them() -> None:
    devices = cluster()
    devices.set_claim(claim())
    assert devices.described(node("n0")).status.allocatable[CLAIMED_GPUS] == "2"
    assert devices.described(node("n2")) == node("n2")
    assert devices.has_gpus
    plugin = node("n0", allocatable={"nvidia.com/gpu": "2"})
    assert devices.described(plugin) == plugin
    assert open_to(devices, claiming("p", "c")) == {"n1"}
    assert devices.fit(claiming("p", "c"), "n0") is None


def test_gpus_of_others_claims_are_told_from_those_that_workloads_hold() -> None:
    devices = cluster()
    devices.set_claim(claim("a", given=("gpu-0",), users=("ours",)))
    devices.set_claim(claim("b", given=("gpu-1",), users=("theirs",)))
    assert devices.take_changed() >= {"n0"}
    assert devices.take_changed() == set()
    assert devices.used_by_others("n0", lambda uid: uid == "ours") == 1
    assert devices.used_by_others("n0", lambda _: False) == 2
    assert devices.used_by_others("n1", lambda _: False) == 0
    devices.drop_claim(claim("b"))
    assert devices.take_changed() == {"n0"}
    assert devices.used_by_others("n0", lambda uid: uid == "ours") == 0


def test_devices_that_take_time_to_prepare_are_given_last() -> None:
    attached = device("gpu-0", bindingConditions=["example.com/attached"])
    devices = cluster(device_slice("n0", attached, device("gpu-1")))
    for name, gets in (("c", "gpu-1"), ("d", "gpu-0")):
        devices.set_claim(claim(name))
        assert given(devices, claiming(name, name), "n0") == [gets]
