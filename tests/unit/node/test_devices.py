"""Real devices through NVML, simulated ones, and the choice between them."""

import logging

import pytest

from carrel_scheduler.core.nodes.nodes import MOST_DEVICES
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.node.machine import DEFAULT_SIMULATED, detect
from carrel_scheduler.node.nvml import NvmlProvider, NvmlUnusable
from carrel_scheduler.node.processes import TreeUse
from carrel_scheduler.node.simulated import SimulatedProvider
from unit.node.fake_nvml import FakeNvml

NODE = NodeFacts(name="desk", cpu_milli=2000, memory_mib=1000, devices=(), simulated=False)


def test_real_devices_as_nvml_tells_them() -> None:
    facts = detect(None, 1024, "A10", node_name="desk", nvml=FakeNvml(as_bytes=True)).facts()
    assert (facts.name, facts.driver, facts.simulated) == ("desk", "580.65.06", False)
    assert [(device.index, device.uuid) for device in facts.devices] == [(0, "GPU-0"), (1, "GPU-1")]
    device = facts.devices[0]
    assert (device.name, device.memory_mib, device.simulated) == ("H200", 143_771, False)
    assert not device.broken


def test_use_of_real_devices() -> None:
    use = NvmlProvider(NODE, FakeNvml()).sample({0: [1]})
    assert [(one.utilization, one.memory_used_mib, one.pids) for one in use] == [
        (0.4, 1024, (100,)),
        (0.41, 2048, (101,)),
    ]


def test_a_device_that_stops_answering_is_broken_and_keeps_its_face() -> None:
    nvml = FakeNvml()
    provider = NvmlProvider(NODE, nvml)
    before = provider.facts().devices
    nvml.broken[1] = nvml.NVML_ERROR_GPU_IS_LOST
    well, lost = provider.facts().devices
    assert well == before[0]
    assert (lost.broken, lost.lost, lost.message) == (True, True, "NVML error 15")
    assert (lost.uuid, lost.name, lost.memory_mib) == ("GPU-1", "H200", 143_771)
    assert provider.sample({})[1].pids == ()
    del nvml.broken[1]
    assert provider.facts().devices == before


def test_a_device_broken_from_the_start_is_listed() -> None:
    nvml = FakeNvml()
    nvml.broken[0] = nvml.NVML_ERROR_GPU_IS_LOST
    device = NvmlProvider(NODE, nvml).facts().devices[0]
    assert (device.index, device.broken, device.uuid) == (0, True, "")


def test_what_a_device_cannot_tell_is_left_out() -> None:
    nvml = FakeNvml()
    nvml.no_rates[0] = nvml.NVML_ERROR_NOT_SUPPORTED
    use = NvmlProvider(NODE, nvml).sample({})
    assert (use[0].utilization, use[0].memory_used_mib, use[0].pids) == (0.0, 1024, (100,))


@pytest.mark.parametrize("code", [9, 12])
def test_no_driver_means_simulated_devices(code: int) -> None:
    facts = detect(None, 24_576, "A10", nvml=FakeNvml(init_error=code)).facts()
    assert facts.simulated
    assert len(facts.devices) == DEFAULT_SIMULATED


def test_no_gpu_behind_the_driver_means_simulated_devices() -> None:
    assert detect(None, 24_576, "A10", nvml=FakeNvml(0)).facts().simulated


def test_a_driver_that_does_not_work_is_no_reason_to_pretend() -> None:
    with pytest.raises(NvmlUnusable, match="--gpus"):
        detect(None, 24_576, "A10", nvml=FakeNvml(init_error=18))


@pytest.mark.parametrize("count", [0, 1, 8])
def test_a_number_means_simulated_devices_and_never_a_mixture(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        facts = detect(count, 24_576, "A10", nvml=FakeNvml()).facts()
    assert [device.index for device in facts.devices] == list(range(count))
    assert all(device.simulated and device.uuid == "" for device in facts.devices)
    assert facts.simulated
    assert facts.name
    assert facts.cpu_milli > 0
    assert facts.memory_mib > 0
    assert "simulated" in caplog.text


@pytest.mark.parametrize(("gpus", "memory"), [(-1, 1), (1025, 1), (1, 0), (1, -5)])
def test_senseless_numbers_are_refused(gpus: int, memory: int) -> None:
    with pytest.raises(ValueError, match="is right"):
        detect(gpus, memory, "A10")


class World:
    """A clock and processes for the simulation."""

    def __init__(self) -> None:
        self.now = 100.0
        self.trees: dict[int, TreeUse] = {}

    def provider(self) -> SimulatedProvider:
        return SimulatedProvider(
            NODE,
            count=3,
            memory_mib=1000,
            name="A10",
            clock=lambda: self.now,
            measure=lambda pid: self.trees.get(pid),  # noqa: PLW0108 - tests replace the dict
        )


def test_simulated_use_follows_the_processes() -> None:
    world = World()
    provider = world.provider()
    world.trees = {7: TreeUse(10.0, 300.0), 8: TreeUse(0.0, 5000.0)}
    first = provider.sample({0: [7], 1: [8], 2: [8]})
    assert [use.utilization for use in first] == [0.0, 0.0, 0.0]
    assert [use.memory_used_mib for use in first] == [300, 1000, 1000]
    world.now += 5
    world.trees = {7: TreeUse(12.0, 300.0), 8: TreeUse(3.0, 400.0)}
    second = provider.sample({0: [7], 1: [8], 2: [8]})
    assert [use.utilization for use in second] == pytest.approx([0.4, 0.3, 0.3])
    assert [use.memory_used_mib for use in second] == [300, 200, 200]
    assert [use.pids for use in second] == [(7,), (8,), (8,)]


def test_many_busy_cores_are_one_busy_device() -> None:
    world = World()
    provider = world.provider()
    world.trees[7] = TreeUse(0.0, 1.0)
    provider.sample({0: [7]})
    world.now += 1
    world.trees[7] = TreeUse(8.0, 1.0)
    assert provider.sample({0: [7]})[0].utilization == 1.0


def test_processes_that_are_gone_use_nothing() -> None:
    world = World()
    provider = world.provider()
    world.trees[7] = TreeUse(5.0, 1.0)
    provider.sample({0: [7]})
    world.trees.clear()
    world.now += 1
    use = provider.sample({0: [7]})[0]
    assert (use.utilization, use.memory_used_mib, use.pids) == (0.0, 0, ())
    world.trees[7] = TreeUse(1.0, 1.0)
    world.now += 1
    assert provider.sample({0: [7]})[0].utilization == 0.0, "the pid is another process now"


@pytest.mark.parametrize("gpus", [-1, 65, 1024])
def test_more_than_a_node_may_have_is_refused(gpus: int) -> None:
    with pytest.raises(ValueError, match=f"gpus={gpus}: a number from 0 to {MOST_DEVICES} is"):
        detect(gpus, 1024, "A10", node_name="desk")
