"""A machine with one GPU in MIG mode and unlike others, from its registration to work on them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.service.site import Site, site
from gpu_driver.session import library, machine
from gpu_driver.state import MIB, GpuState

STAY = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 600"]
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
