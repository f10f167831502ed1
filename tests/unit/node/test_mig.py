"""MIG instances through the real pynvml, on the test driver's GPUs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from carrel_scheduler.core.mig import MODELS
from carrel_scheduler.node.machine import detect, find_mig
from carrel_scheduler.node.mig import (
    Instance,
    MigError,
    MigUnusable,
    NvmlMig,
    SimulatedMig,
    model_for,
)
from carrel_scheduler.node.nvml import MIG_MODE, NO_MIG_MODE, NvmlProvider, open_nvml
from gpu_driver.session import machine
from gpu_driver.state import MIB, NONE, GpuState

NAME = b"NVIDIA H100 80GB HBM3"
HIGH, LOW = 0b1111_0000, 0b0000_1111


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[GpuState]:
    with machine(tmp_path / "gpus", devices=2, memory=81_559 * MIB) as state:
        for index in range(2):
            state.layout.devices[index].name = NAME
        assert open_nvml(pynvml)
        yield state


@pytest.fixture
def divided(gpus: GpuState) -> NvmlMig:
    assert gpus.layout.devices[0].mig_mode == 0
    found = NvmlMig(pynvml)
    found.enable()
    assert [gpus.layout.devices[index].mig_mode for index in range(2)] == [1, 1]
    return found


def uuid(gpus: GpuState, index: int = 0) -> str:
    return str(gpus.layout.devices[index].uuid.decode())


def places(found: NvmlMig, device: str) -> set[tuple[str, int]]:
    return {(one.profile, one.bits) for one in found.instances(device)}


def test_instances_are_made_where_they_are_to_lie_and_removed(
    gpus: GpuState, divided: NvmlMig
) -> None:
    device = uuid(gpus)
    large, small = divided.create(device, "3g.40gb", HIGH), divided.create(device, "1g.10gb", 0b100)
    assert {large.uuid, small.uuid} == {one.uuid for one in divided.instances(device)}
    assert places(divided, device) == {("3g.40gb", HIGH), ("1g.10gb", 0b100)}
    assert divided.instances(uuid(gpus, 1)) == []
    divided.remove(device, large)
    assert divided.instances(device) == [small]
    seen = [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(small.uuid))]
    assert seen == [small.uuid], "programs find it by that UUID"


def test_what_does_not_fit_is_refused_in_the_drivers_words(
    gpus: GpuState, divided: NvmlMig
) -> None:
    device = uuid(gpus)
    divided.create(device, "1g.10gb", 0b1)
    with pytest.raises(MigError, match=f"7g.80gb cannot be made on GPU {device}: Insufficient"):
        divided.create(device, "7g.80gb", 0xFF)


def test_half_an_instance_is_not_left_behind(gpus: GpuState, divided: NvmlMig) -> None:
    device = uuid(gpus)
    gpus.layout.devices[0].mig_failures = 1
    with pytest.raises(MigError, match="cannot be made"):
        divided.create(device, "3g.40gb", HIGH)
    assert divided.instances(device) == []


def test_one_that_somebody_left_without_a_compute_instance_can_be_removed(
    gpus: GpuState, divided: NvmlMig
) -> None:
    device = uuid(gpus)
    made = divided.create(device, "3g.40gb", HIGH)
    gpus.layout.devices[0].migs[made.number - 1].incomplete = 1
    [left] = divided.instances(device)
    assert (left.profile, left.bits, left.uuid) == ("3g.40gb", HIGH, "")
    divided.remove(device, left)
    assert divided.instances(device) == []


def test_the_driver_keeps_what_is_in_use(gpus: GpuState, divided: NvmlMig) -> None:
    device = uuid(gpus)
    made = divided.create(device, "2g.20gb", 0b11)
    gpus.list_process(0, os.getpid(), memory=MIB)
    gpus.layout.processes[0].use[0].gpu_instance = made.number
    assert [one.busy for one in divided.instances(device)] == [True]
    with pytest.raises(MigError, match="In use by another client"):
        divided.remove(device, made)
    gpus.layout.processes[0].use[0].gpu_instance = NONE
    divided.remove(device, made)


def test_a_mode_that_begins_with_a_reset_is_told(gpus: GpuState) -> None:
    gpus.layout.devices[1].mig_needs_reset = 1
    with pytest.raises(MigUnusable, match=r"GPU 1: .* nvidia-smi --gpu-reset -i 1"):
        find_mig(None)


def test_gpus_that_are_not_alike_or_unknown_are_not_divided(
    gpus: GpuState, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.layout.devices[1].name = b"NVIDIA A100-SXM4-80GB"
    with pytest.raises(MigUnusable, match="different models"):
        find_mig(None)
    gpus.layout.devices[1].name = NAME
    monkeypatch.setattr("carrel_scheduler.node.mig.MODELS", {"A30-24GB": MODELS["A30-24GB"]})
    with pytest.raises(MigUnusable, match="no profiles of MIG that are known here"):
        find_mig(None)


def test_gpus_without_mig_are_given_whole_beside_those_that_are_divided(gpus: GpuState) -> None:
    gpus.layout.devices[1].name = b"Tesla T4"
    mig = find_mig(None)
    assert mig.model.name == "H100-80GB"
    assert [gpus.layout.devices[index].mig_mode for index in range(2)] == [1, 0]
    facts = detect(None, 24_000, "x", mig=mig).facts()
    assert facts.mig_model == "H100-80GB"
    assert [(one.broken, one.undivided) for one in facts.devices] == [(False, False), (False, True)]
    assert detect(None, 24_000, "x").facts().devices[1].undivided is False
    gpus.layout.devices[0].mig_mode = 0
    [off, plain] = detect(None, 24_000, "x", mig=mig).facts().devices
    assert (off.message, plain.broken) == (NO_MIG_MODE, False)
    gpus.layout.devices[0].name = b"Tesla T4"
    with pytest.raises(MigUnusable, match="no GPU of this machine has MIG"):
        find_mig(None)


def test_without_division_a_gpu_in_mig_mode_serves_nobody_and_the_others_serve(
    gpus: GpuState,
) -> None:
    devices = gpus.layout.devices
    devices[0].name, devices[0].mig_mode = b"NVIDIA A100-SXM4-80GB", 1
    devices[1].name = b"Tesla T4"
    facts = detect(None, 24_000, "x").facts()
    assert [(one.name, one.broken, one.message) for one in facts.devices] == [
        ("A100-SXM4-80GB", True, MIG_MODE),
        ("Tesla T4", False, ""),
    ]
    [of_agent, _] = NvmlProvider(facts, pynvml).facts().devices
    assert not of_agent.broken, "on a cluster its admins divide it, and the device plugin offers it"
    devices[0].mig_mode = 0
    assert not detect(None, 24_000, "x").facts().devices[0].broken


@pytest.mark.parametrize(
    ("name", "like", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-80GB", "H100-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB", "A100-80GB"),
        ("NVIDIA A800-SXM4-80GB", "A100-80GB", "A100-80GB"),
        ("NVIDIA H200", "H200-141GB", "H200-141GB"),
        ("NVIDIA GH200 480GB", "GH200-144GB", "GH200-144GB"),
        ("NVIDIA A30", "A30-24GB", "A30-24GB"),
    ],
)
def test_models_are_known_by_profiles_and_name(name: str, like: str, model: str) -> None:
    offered = {one.name: one.compute for one in MODELS[like].profiles.values()}
    found = model_for(name, offered | {"1g.10gb+gfx": 1})
    assert found is not None
    assert found.name == model


def test_the_facts_of_a_machine_with_divided_gpus(gpus: GpuState) -> None:
    mig = find_mig(None)
    provider = detect(None, 1024, "A10", mig=mig)
    mig.create(uuid(gpus), "3g.40gb", LOW)
    facts = provider.facts()
    assert facts.mig_model == "H100-80GB"
    assert [one.name for one in facts.devices[0].instances] == ["3g.40gb"]
    assert not facts.devices[0].broken
    gpus.layout.devices[0].mig_mode = 0
    [first, second] = provider.facts().devices
    assert first.broken
    assert "MIG mode was switched off" in first.message
    assert not second.broken


def test_simulated_gpus_are_of_a_model_that_can_be_divided() -> None:
    mig = find_mig(2)
    assert isinstance(mig, SimulatedMig)
    provider = detect(2, 1024, "A10", mig=mig)
    made = mig.create("1", "2g.20gb", 0b11)
    facts = provider.facts()
    assert (facts.mig_model, facts.devices[0].name) == ("A100-80GB", "A100-80GB")
    assert [one.uuid for one in facts.devices[1].instances] == [made.uuid]
    mig.remove("1", made)
    assert mig.instances("1") == ()
    assert isinstance(made, Instance)
