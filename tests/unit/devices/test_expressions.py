"""Selectors of devices: what they select, and what is refused before it costs time."""

import pytest

from carrel_scheduler.engines.kubernetes.pods.devices.inventory import Inventory
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from unit.devices.making_devices import device, device_slice


def selected(expression: str) -> bool:
    devices = Inventory()
    devices.set_slice(device_slice("n0", device("gpu-3")))
    [one] = devices.of_node("n0")
    return one.is_selected([expression])


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.nvidia.com"',
        'device.attributes["gpu.nvidia.com"].type == "gpu"',
        'device.attributes["gpu.nvidia.com"].productName.lowerAscii().matches("^.*a100.*$")',
        'device.attributes["gpu.nvidia.com"].index in [1, 3]',
        'device.attributes["gpu.nvidia.com"].healthy',
        'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0',
        'device.capacity["gpu.nvidia.com"].memory == quantity("80Gi")',
        'device.capacity["gpu.nvidia.com"].memory.isLessThan(quantity("80.5Gi"))',
        'device.attributes["gpu.nvidia.com"].driverVersion.isGreaterThan(semver("550.9.0"))',
        'device.attributes["gpu.nvidia.com"].driverVersion.compareTo(semver("550.54.15-rc.1")) > 0',
        '!has(device.attributes["gpu.nvidia.com"].absent)',
        '"type" in device.attributes["gpu.nvidia.com"]',
        'device.attributes["resource.kubernetes.io"].pcieRoot == "root-1"',
    ],
)
def test_it_selects(expression: str) -> None:
    assert selected(expression)


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.amd.com"',
        'device.attributes["gpu.nvidia.com"].absent == "x"',
        'device.attributes["another.example.com"].type == "gpu"',
        'device.attributes["gpu.nvidia.com"].type > 3',
        'semver("no version").compareTo(semver("1.0.0")) == 0',
        'quantity("no quantity") == 1',
        "device.driver",
    ],
)
def test_what_fails_or_does_not_hold_selects_nothing(expression: str) -> None:
    assert not selected(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver ==",
        "(" * 5000 + "true" + ")" * 5000,
        'device.driver == "' + "x" * 11_000 + '"',
        "[1, 2].all(device, [1, 2].all(device, true))",
        "[1, 2].exists(one, one == 1)",
        "[1, 2].exists_one(device, true)",
        "[1, 2].map(device, device) == []",
        "[1, 2].filter(device, true) == []",
        "cel.bind(x, device.driver + device.driver, x + x) == device.driver",
        'device.driver + device.driver == ""',
        "other.driver == device.driver",
        'environment("HOME") == device.driver',
    ],
)
def test_what_is_no_selector_or_may_take_long_is_refused(expression: str) -> None:
    with pytest.raises(PodRefused) as refused:
        selected(expression)
    assert refused.value.code == "bad_selector"
    assert len(refused.value.sentence) < 700
