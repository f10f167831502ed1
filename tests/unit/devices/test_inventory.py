"""Devices of nodes, from the slices of their drivers."""

from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.pods.devices.inventory import Inventory
from unit.devices.making_devices import DRIVER, NIC, device, device_slice, gpus


def names(devices: Inventory, node: str = "n0") -> list[str]:
    return [one.id[2] for one in devices.of_node(node)]


def test_devices_come_change_and_go_with_their_slices() -> None:
    devices = Inventory()
    devices.set_slice(gpus("n0", 2))
    devices.set_slice(gpus("n1", 1))
    assert names(devices) == ["gpu-0", "gpu-1"]
    assert devices.node_of((DRIVER, "n1", "gpu-0")) == "n1"
    assert devices.changed == {"n0", "n1"}
    before = devices.version
    devices.set_slice(gpus("n0", 1))
    assert names(devices) == ["gpu-0"]
    assert devices.version > before
    devices.drop_slice(gpus("n0", 1))
    assert names(devices) == []
    assert list(devices.nodes()) == ["n1"]
    assert devices.node_of((DRIVER, "n0", "gpu-0")) == ""


def test_a_pool_counts_once_all_its_slices_of_the_newest_generation_are_there() -> None:
    devices = Inventory()
    devices.set_slice(device_slice("n0", device("gpu-0"), name="a", of=2))
    assert names(devices) == []
    devices.set_slice(device_slice("n0", device("gpu-1"), name="b", of=2))
    assert names(devices) == ["gpu-0", "gpu-1"]
    devices.set_slice(device_slice("n0", device("gpu-2"), name="a", of=2, generation=2))
    assert names(devices) == []
    devices.set_slice(device_slice("n0", device("gpu-3"), name="b", of=2, generation=2))
    assert names(devices) == ["gpu-2", "gpu-3"]


@pytest.mark.parametrize(
    "what",
    [
        {"consumesCounters": [{"counterSet": "gpu-0", "counters": {}}]},
        {"allowMultipleAllocations": True, "consumesCounters": [{"counterSet": "gpu-0"}]},
        {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "much"}}},
    ],
)
def test_devices_that_nobody_can_be_given_are_left_out(what: dict[str, Any]) -> None:
    devices = Inventory()
    devices.set_slice(device_slice("n0", device("gpu-0"), device("gpu-1", **what)))
    assert names(devices) == ["gpu-0"]


def test_gpus_are_the_devices_of_gpu_drivers_without_a_taint() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    devices = Inventory()
    devices.set_slice(device_slice("n0", device("gpu-0"), device("gpu-1", taints=[taint])))
    devices.set_slice(device_slice("n0", device("nic-0"), driver=NIC))
    assert [one.id[2] for one in devices.gpus("n0")] == ["gpu-0"]
    others = Inventory([NIC])
    others.set_slice(device_slice("n0", device("nic-0"), driver=NIC))
    assert [one.id[2] for one in others.gpus("n0")] == ["nic-0"]
