"""Which instance a task gets: an idle one that is right, else a new one in place of idle ones."""

import os
import stat
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError, NotOnThisNode, TaskId, TaskSpec
from carrel_scheduler.engines.local.mig import capability_nodes, take_instance
from carrel_scheduler.node.mig import Instance, SimulatedMig

HIGH, LOW, ALL = 0b1111_0000, 0b0000_1111, 0xFF


@pytest.fixture
def gpus() -> SimulatedMig:
    return SimulatedMig()


def asks(profile: str, bits: int, device: int = 0) -> TaskSpec:
    return TaskSpec(
        id=TaskId("w1", 0, 0),
        name="train",
        project="vision",
        user="ada",
        node="desk",
        devices=(device,),
        mig_profile=profile,
        mig_slots=bits,
    )


def there(gpus: SimulatedMig, device: str = "0") -> set[tuple[str, int]]:
    return {(one.profile, one.bits) for one in gpus.instances(device)}


def test_an_idle_one_is_used_again(gpus: SimulatedMig) -> None:
    first = take_instance(gpus, asks("3g.40gb", HIGH), ())
    assert take_instance(gpus, asks("3g.40gb", HIGH), ()) == first
    other = take_instance(gpus, asks("3g.40gb", HIGH, device=1), ())
    assert other.uuid != first.uuid


def test_idle_ones_in_the_way_go_and_others_stay(gpus: SimulatedMig) -> None:
    for bit in range(5):
        take_instance(gpus, asks("1g.10gb", 1 << bit), ())
    take_instance(gpus, asks("3g.40gb", LOW), ())
    assert there(gpus) == {("3g.40gb", LOW), ("1g.10gb", 1 << 4)}


def test_one_with_media_engines_makes_room_for_another(gpus: SimulatedMig) -> None:
    take_instance(gpus, asks("1g.10gb+me", 1), ())
    take_instance(gpus, asks("1g.10gb+me", 1 << 3), ())
    assert there(gpus) == {("1g.10gb+me", 1 << 3)}


def test_one_that_is_in_use_is_never_touched(gpus: SimulatedMig) -> None:
    held = take_instance(gpus, asks("1g.10gb", 1), ())
    idle = take_instance(gpus, asks("1g.10gb", 2), ())
    with pytest.raises(NotOnThisNode, match=r"1g\.10gb on GPU 0, in the way of 7g\.80gb, is in"):
        take_instance(gpus, asks("7g.80gb", ALL), {held.uuid})
    assert held in gpus.instances("0")
    with pytest.raises(NotOnThisNode, match="is in use"):
        take_instance(gpus, asks("1g.10gb", 1), {held.uuid})
    assert take_instance(gpus, asks("1g.10gb", 2), {held.uuid}) == idle


def test_half_an_instance_is_replaced(gpus: SimulatedMig, monkeypatch: pytest.MonkeyPatch) -> None:
    half = Instance(number=9, profile="3g.40gb", bits=HIGH)
    removed: list[Instance] = []
    monkeypatch.setattr(gpus, "instances", lambda _: [half])
    monkeypatch.setattr(gpus, "remove", lambda _, one: removed.append(one))
    assert take_instance(gpus, asks("3g.40gb", HIGH), ()).uuid
    assert removed == [half]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="device files are made by root")
def test_device_files_of_an_instance(tmp_path: Path) -> None:
    instance = Instance(number=3, profile="3g.40gb", bits=HIGH, uuid="MIG-x", compute=1)
    of_gpu = tmp_path / "capabilities" / "gpu7" / "mig" / "gi3"
    (of_gpu / "ci1").mkdir(parents=True)
    (of_gpu / "access").write_text("DeviceFileMinor: 30\nDeviceFileMode: 292\n")
    (of_gpu / "ci1" / "access").write_text("DeviceFileMinor: 31\n")
    (tmp_path / "devices").write_text("Character devices:\n195 nvidia\n238 nvidia-caps\n")
    nodes = tmp_path / "nvidia-caps"
    where = {
        "capabilities": tmp_path / "capabilities",
        "nodes": nodes,
        "majors": tmp_path / "devices",
    }
    assert capability_nodes("7", instance, **where) == [
        str(nodes / "nvidia-cap30"),
        str(nodes / "nvidia-cap31"),
    ]
    made = (nodes / "nvidia-cap31").stat()
    assert stat.S_ISCHR(made.st_mode)
    assert (os.major(made.st_rdev), os.minor(made.st_rdev)) == (238, 31)
    assert capability_nodes("7", instance, **where), "those that are there are used"
    with pytest.raises(EngineError, match="tells of no MIG capability"):
        capability_nodes("8", instance, **where)
