"""A machine with one GPU in MIG mode and unlike others, from its registration to work on them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.service.site import Site, site
from gpu_driver.session import library, machine
from gpu_driver.state import MIB, GpuState

STAY = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 600"]
TRAINS = """
import os, pathlib, time
from carrel import checkpoint

state = checkpoint.restore(default={"step": 0})
asked = checkpoint.preempted()
print("step", state["step"], "on", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
while not checkpoint.preempted():
    time.sleep(0.05)
checkpoint.save({"step": 41}, step=41)
while not (pathlib.Path(os.environ["CARREL_CHECKPOINT_DIR"]) / "may-end").exists():
    time.sleep(0.05)
checkpoint.exit_for_preemption()
"""
NAMES = (b"NVIDIA A100-SXM4-80GB", b"Tesla T4", b"NVIDIA A100-SXM4-80GB")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[GpuState]:
    (tmp_path / "state").mkdir()
    with machine(tmp_path / "gpus", devices=3, memory=15_360 * MIB) as found:
        for device, name in zip(found.layout.devices, NAMES, strict=False):
            device.name = name
        found.layout.devices[0].mig_mode = 1
        yield found


@pytest.fixture
async def service(driver: GpuState, tmp_path: Path) -> AsyncIterator[Site]:
    more = {
        "CARREL_GPUS": "",
        "CARREL_TEST_GPU_STATE": str(driver.path),
        "LD_LIBRARY_PATH": str(library().parent),
    }
    async with site(tmp_path / "state", 3, more=more) as made:
        yield made


async def test_each_gpu_is_registered_as_what_it_is_and_found_by_its_type(
    service: Site, driver: GpuState
) -> None:
    [node] = (await service.ask("GET", "/nodes"))["items"]
    assert [(one["name"], one["broken"]) for one in node["devices"]] == [
        ("A100-SXM4-80GB", True),
        ("Tesla T4", False),
        ("A100-SXM4-80GB", False),
    ]
    assert "MIG mode is on" in node["devices"][0]["message"]
    uuids = [device.uuid.decode() for device in driver.layout.devices[:3]]
    asked: dict[str, tuple[dict[str, Any], str]] = {
        "by-type": ({"gpu_types": ["A100", "T4"]}, uuids[2]),
        "by-group": ({"node_group": "tesla-t4"}, uuids[1]),
    }
    for name, (request, uuid) in asked.items():
        await service.submit(name, command=STAY, gpus=1, **request)
        await service.phase(name, "running")
        assert (await service.said(name)).strip() == uuid
    await service.ask("POST", "/workloads/vision/by-group/suspend")
    await service.phase("by-group", "stopped")
    await moves_to_the_better_one(service, second=uuids[1], first=uuids[2], holder="by-type")


async def moves_to_the_better_one(service: Site, *, second: str, first: str, holder: str) -> None:
    """A training whose first choice another one holds, until that ends."""
    uid = await service.submit(
        "moving",
        command=[sys.executable, "train.py"],
        files={"train.py": TRAINS},
        gpus=1,
        gpu_types=["A100", "T4"],
        move_to_better_type=True,
        grace_seconds=60.0,
    )
    await service.phase("moving", "running")
    assert await service.said("moving") == f"step 0 on {second}\n"
    await service.ask("POST", f"/workloads/vision/{holder}/suspend")
    asked = await service.phase("moving", "preempting")
    assert asked["last_preemption"]["rule"] == "improve"
    told = await described(service, "moving")
    assert "Moves to GPUs of a type that it prefers." in told
    assert "(GPUs of a type that it prefers are free)" in told
    (service.checkpoints(uid) / "may-end").touch()
    status = await service.phase("moving", "running")
    await service.said("moving", f"step 41 on {first}\n", attempt="1")
    assert (status["failures"], status["preemptions"]) == (0, 1)
    assert status["last_preemption"]["checkpoint_step"] == 41


async def described(service: Site, name: str) -> str:
    """What ``carrel describe job`` prints."""
    environment = {**os.environ, "CARREL_URL": service.scheduler.url, "CARREL_TOKEN": "ada"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "carrel.cli", "describe", "job", name, "--project", "vision"),
        env={**environment, "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return output.decode()
