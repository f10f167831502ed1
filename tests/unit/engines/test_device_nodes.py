"""Which files in ``/dev`` a task with GPUs gets."""

from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskSpec
from carrel_scheduler.engines.local.environment import device_nodes


def task(*uuids: str) -> TaskSpec:
    devices = tuple(range(len(uuids)))
    return TaskSpec(
        id=TaskId("w", 0, 0),
        name="t",
        project="p",
        user="ada",
        node="n",
        devices=devices,
        device_uuids=uuids,
    )


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
    found = device_nodes(task("GPU-a"), driver=driver, devices=dev)
    assert found == [f"{dev}/nvidia4", f"{dev}/nvidiactl"]
    assert device_nodes(task(), driver=driver, devices=dev) == []


def test_a_gpu_that_the_driver_does_not_know_is_refused(driver: Path) -> None:
    with pytest.raises(EngineError, match="GPU-z"):
        device_nodes(task("GPU-z"), driver=driver)


def test_without_a_driver_there_is_nothing_to_give(tmp_path: Path) -> None:
    assert device_nodes(task("GPU-a"), driver=tmp_path / "none") == []
