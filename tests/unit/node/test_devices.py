"""Real devices through NVML (the real pynvml and a test driver), simulated ones, and the choice."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pynvml
import pytest

from carrel_scheduler.core.nodes.nodes import MOST_DEVICES
from carrel_scheduler.node.contract import DeviceLink, NodeFacts
from carrel_scheduler.node.machine import DEFAULT_SIMULATED, detect
from carrel_scheduler.node.nvml import NvmlProvider, NvmlUnusable, open_nvml
from carrel_scheduler.node.processes import TreeUse
from carrel_scheduler.node.simulated import SimulatedProvider
from gpu_driver.session import machine
from gpu_driver.state import MIB, NONE, GpuState

NODE = NodeFacts(name="desk", cpu_milli=2000, memory_mib=1000, devices=(), simulated=False)
NOBODY = 4_000_000


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[GpuState]:
    with machine(tmp_path / "gpus", devices=4, memory=16_384 * MIB) as state:
        yield state


@pytest.fixture
def provider(gpus: GpuState, tmp_path: Path) -> NvmlProvider:
    assert gpus.layout.device_count == 4
    assert open_nvml(pynvml)
    return NvmlProvider(NODE, pynvml, sysfs=tmp_path, clock=lambda: now[0])


now = [1_000.0]


def test_real_devices_as_nvml_tells_them(gpus: GpuState) -> None:
    gpus.layout.devices[1].name = b"NVIDIA H200"
    facts = detect(None, 1024, "A10", node_name="desk").facts()
    assert (facts.name, facts.driver, facts.simulated) == ("desk", "580.95.05", False)
    assert [device.index for device in facts.devices] == [0, 1, 2, 3]
    device = facts.devices[1]
    assert (device.name, device.memory_mib, device.simulated) == ("H200", 16_384, False)
    assert device.uuid == "GPU-00000000-0000-0000-0000-000000000001"
    assert not device.broken


def test_use_of_real_devices_and_of_each_task_there(gpus: GpuState, provider: NvmlProvider) -> None:
    """A task's own children count as its; of a stranger's process nobody knows whose it is."""
    task, device = os.getpid(), gpus.layout.devices[1]
    device.utilization_gpu, device.power_mw, device.temperature_c = 90, 412_500, 61
    gpus.list_process(1, task, memory=1024 * MIB, sm_percent=60, sampled_us=10)
    gpus.list_process(1, NOBODY, memory=512 * MIB, sm_percent=30, sampled_us=10)
    idle, busy, *_ = provider.sample({1: [task], 0: [NOBODY + 1]})
    assert (idle.utilization, idle.memory_used_mib, idle.known, idle.owners) == (0.0, 0, True, ())
    assert (busy.utilization, busy.memory_used_mib, busy.pids) == (0.9, 1536, (task, NOBODY))
    assert (busy.power_watts, busy.temperature_c, busy.attributed) == (412.5, 61, False)
    [own] = busy.owners
    assert (own.owner, own.utilization, own.memory_used_mib) == (str(task), 0.6, 1024)
    [own] = provider.sample({1: [task]})[1].owners
    assert own.utilization == 0.0, "nothing was sampled since"
    parent = psutil.Process().parent()
    assert parent is not None
    [own] = provider.sample({1: [parent.pid]})[1].owners
    assert own.owner == str(parent.pid)


def test_a_device_that_stops_answering_is_broken_and_keeps_its_face(
    gpus: GpuState, provider: NvmlProvider
) -> None:
    before = provider.facts().devices
    gpus.layout.devices[1].lost = 1
    lost = provider.facts().devices[1]
    assert provider.facts().devices[0] == before[0]
    assert (lost.broken, lost.lost, lost.message) == (True, True, "GPU is lost")
    assert (lost.uuid, lost.memory_mib) == (before[1].uuid, 16_384)
    assert not provider.sample({})[1].known
    gpus.layout.devices[1].lost = 0
    assert provider.facts().devices == before


def test_a_device_broken_from_the_start_is_listed(gpus: GpuState, provider: NvmlProvider) -> None:
    gpus.layout.devices[0].lost = 1
    device = provider.facts().devices[0]
    assert (device.index, device.broken, device.uuid) == (0, True, "")


def test_what_a_device_cannot_tell_is_left_out(gpus: GpuState, provider: NvmlProvider) -> None:
    gpus.layout.devices[0].no_counters = 1
    gpus.list_process(0, os.getpid(), memory=7 * MIB)
    use = provider.sample({0: [os.getpid()]})[0]
    assert (use.utilization, use.known, use.memory_used_mib) == (0.0, False, 7)
    assert [(one.utilization, one.memory_used_mib) for one in use.owners] == [(None, 7)]


def test_instances_of_a_divided_device(gpus: GpuState, provider: NvmlProvider) -> None:
    device = gpus.layout.devices[2]
    device.mig_mode = 1
    one = device.migs[3]
    one.present, one.gpu_instance, one.name, one.uuid = 1, 5, b"1g.10gb", b"MIG-5"
    one.memory_total, one.memory_used = 9_728 * MIB, 100 * MIB
    [found] = provider.facts().devices[2].instances
    assert (found.uuid, found.name) == ("MIG-5", "1g.10gb")
    assert (found.memory_mib, found.memory_used_mib) == (9_728, 100)
    assert not provider.sample({})[2].known, "its utilisation is not told"


def test_an_ordinary_account_sees_the_processes_of_instances(
    gpus: GpuState, provider: NvmlProvider
) -> None:
    """Of the whole divided device the driver tells it neither memory nor processes."""
    gpus.layout.unprivileged = 1
    device = gpus.layout.devices[2]
    device.mig_mode = 1
    gpus.list_process(2, os.getpid(), memory=7 * MIB, gpu_instance=5)
    provider.facts()
    hidden = provider.sample({2: [os.getpid()]})[2]
    assert (hidden.owners, hidden.attributed) == ((), False), "nobody is idle there for that"
    device.migs[3].present, device.migs[3].gpu_instance = 1, 5
    found = provider.sample({2: [os.getpid()]})[2]
    [own] = found.owners
    assert (own.owner, own.utilization, own.memory_used_mib) == (str(os.getpid()), None, 7)
    assert (found.attributed, found.known, found.memory_used_mib) == (True, False, 7)
    assert not provider.facts().devices[2].broken


def test_linked_devices_and_those_of_one_numa_node_are_near(
    gpus: GpuState, provider: NvmlProvider, tmp_path: Path
) -> None:
    devices = gpus.layout.devices
    for first, second in ((0, 1), (1, 0)):
        link = devices[first].links[4]
        link.active, link.remote_bus_id = 1, devices[second].bus_id
    for index in (2, 3):  # these two meet at a switch
        link = devices[index].links[0]
        link.active, link.remote_type, link.remote_bus_id = 1, 2, b"00000000:C0:00.0"
    for number, node in ((1, 0), (2, 1), (3, 1), (4, -1)):
        folder = tmp_path / "bus" / "pci" / "devices" / f"0000:{number:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
    facts = provider.facts()
    assert facts.links == (DeviceLink(0, 1, 0), DeviceLink(1, 2, 2), DeviceLink(2, 3, 0))
    assert [device.numa_node for device in facts.devices] == [0, 1, 1, -1]


def conditions(provider: NvmlProvider, index: int = 0) -> list[tuple[str, str]]:
    return [(one.message, one.severity) for one in provider.facts().devices[index].conditions]


def test_fatal_xids_stay_and_errors_of_programs_are_none_of_the_devices(
    gpus: GpuState, provider: NvmlProvider
) -> None:
    gpus.report_xid(0, 79)  # before anybody listened
    assert conditions(provider) == []
    gpus.report_xid(0, 31)
    gpus.report_xid(0, 48, gpu_instance=NONE)
    gpus.report_xid(1, 95)
    for _ in range(2):
        assert conditions(provider) == [("Xid 48: uncorrectable double-bit memory error", "failed")]
    assert conditions(provider, 1) == [("Xid 95: uncontained memory error", "failed")]


def test_memory_that_cannot_be_repaired_is_a_condition_while_it_lasts(
    gpus: GpuState, provider: NvmlProvider
) -> None:
    device = gpus.layout.devices[0]
    device.ecc_uncorrected, device.remap_failed = 2, 1
    assert conditions(provider) == [
        ("2 uncorrectable memory errors since the last reset", "failed"),
        ("a row of memory could not be remapped", "failed"),
    ]
    device.ecc_uncorrected = device.remap_failed = 0
    assert conditions(provider) == []


def test_links_and_clocks_that_fall_short_for_long_are_conditions(
    gpus: GpuState, provider: NvmlProvider
) -> None:
    """A link that was never up is none: not every board has its bridges."""
    device = gpus.layout.devices[0]
    for number in (0, 1):
        device.links[number].remote_bus_id = b"00000000:C0:00.0"
        device.links[number].active = number
    assert conditions(provider) == []
    device.links[1].active, device.throttle_reasons = 0, 0x40
    assert conditions(provider) == []
    now[0] += 30.0
    assert conditions(provider) == [("NVLink 1 is down", "degraded")]
    now[0] += 90.0
    assert conditions(provider)[1] == ("the hardware holds its clocks down", "degraded")
    device.links[1].active, device.throttle_reasons = 1, 0x1  # clocks of an idle device
    assert conditions(provider) == []


def failing(code: int) -> Any:
    """A pynvml that cannot begin a session."""
    nvml = ModuleType("pynvml")
    nvml.__dict__.update(vars(pynvml))

    def begin() -> None:
        raise pynvml.NVMLError(code)  # type: ignore[no-untyped-call]

    nvml.__dict__["nvmlInit"] = begin
    return nvml


@pytest.mark.parametrize("code", [9, 12])
def test_no_driver_means_simulated_devices(code: int) -> None:
    facts = detect(None, 24_576, "A10", nvml=failing(code)).facts()
    assert facts.simulated
    assert len(facts.devices) == DEFAULT_SIMULATED


def test_no_gpu_behind_the_driver_means_simulated_devices(gpus: GpuState) -> None:
    gpus.layout.device_count = 0
    assert detect(None, 24_576, "A10").facts().simulated


def test_a_driver_that_does_not_work_is_no_reason_to_pretend() -> None:
    with pytest.raises(NvmlUnusable, match="--gpus"):
        detect(None, 24_576, "A10", nvml=failing(18))


@pytest.mark.parametrize("count", [0, 1, 8])
def test_a_number_means_simulated_devices_and_never_a_mixture(
    count: int, gpus: GpuState, caplog: pytest.LogCaptureFixture
) -> None:
    assert gpus.layout.device_count
    with caplog.at_level(logging.INFO):
        facts = detect(count, 24_576, "A10").facts()
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
