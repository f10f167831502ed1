"""Device files and ``/dev/shm`` of a task."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskSpec
from carrel_scheduler.engines.local.environment import check_shared_memory, device_nodes

MIB = 1024**2


def spec(**fields: Any) -> TaskSpec:
    return TaskSpec(id=TaskId("w", 0, 0), name="t", project="p", user="ada", node="n", **fields)


def gpu_task(*uuids: str) -> TaskSpec:
    return spec(devices=tuple(range(len(uuids))), device_uuids=uuids)


def memory_task(*, large_shm: bool = True) -> TaskSpec:
    return spec(large_shm=large_shm)


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    for minor, uuid in ((4, "GPU-a"), (0, "GPU-b")):
        facts = tmp_path / "gpus" / f"0000:0{minor}:00.0"
        facts.mkdir(parents=True)
        text = f"Model: \t\t H200\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (facts / "information").write_text(text)
    (tmp_path / "nvidiactl").touch()
    return tmp_path / "gpus"


def test_only_its_own_gpus_and_what_all_share(driver: Path) -> None:
    dev = driver.parent
    found = device_nodes(gpu_task("GPU-a"), driver=driver, devices=dev)
    assert found == [f"{dev}/nvidia4", f"{dev}/nvidiactl"]
    assert device_nodes(gpu_task(), driver=driver, devices=dev) == []


def test_a_gpu_that_the_driver_does_not_know_is_refused(driver: Path) -> None:
    with pytest.raises(EngineError, match="GPU-z"):
        device_nodes(gpu_task("GPU-z"), driver=driver)


def test_without_a_driver_there_is_nothing_to_give(tmp_path: Path) -> None:
    assert device_nodes(gpu_task("GPU-a"), driver=tmp_path / "none") == []


def has(monkeypatch: pytest.MonkeyPatch, mib: int) -> None:
    facts = SimpleNamespace(f_frsize=4096, f_blocks=mib * MIB // 4096)
    monkeypatch.setattr(os, "statvfs", lambda path: facts)


def test_a_large_one_of_the_machine_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, 65)
    check_shared_memory(memory_task())


def test_a_containers_usual_one_is_refused_to_who_needs_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has(monkeypatch, 64)
    with pytest.raises(EngineError, match=r"has 64 MiB here.*--shm-size"):
        check_shared_memory(memory_task())
    check_shared_memory(memory_task(large_shm=False))


def test_a_machine_without_any_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be used"):
        check_shared_memory(memory_task(), tmp_path / "missing")
