"""GPUs that are divided as work asks, from a request to the instance that a task sees."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.service.site import TIMEOUT_SECONDS, Site, site
from gpu_driver.session import library, machine
from gpu_driver.state import MIB, GpuState

STAY = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 600"]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[GpuState]:
    (tmp_path / "state").mkdir()
    with machine(tmp_path / "gpus", devices=1, memory=81_559 * MIB) as found:
        found.layout.devices[0].name = b"NVIDIA H100 80GB HBM3"
        yield found


@pytest.fixture
async def service(driver: GpuState, tmp_path: Path) -> AsyncIterator[Site]:
    more = {
        "CARREL_GPUS": "",
        "CARREL_MIG": "on",
        "CARREL_TEST_GPU_STATE": str(driver.path),
        "LD_LIBRARY_PATH": str(library().parent),
    }
    async with site(tmp_path / "state", 1, more=more) as made:
        yield made


async def one_device(service: Site) -> dict[str, Any]:
    [node] = (await service.ask("GET", "/nodes"))["items"]
    [device] = node["devices"]
    return dict(device)


async def instances_shown(service: Site) -> set[str]:
    """Those that were there at the last look at the GPUs."""
    return {one["name"] for one in (await one_device(service))["instances"]}


def instances(driver: GpuState) -> dict[str, str]:
    migs = driver.layout.devices[0].migs
    return {one.uuid.decode(): one.name.decode() for one in migs if one.present}


async def test_work_gets_instances_of_what_it_asks_for(service: Site, driver: GpuState) -> None:
    asked: dict[str, dict[str, Any]] = {
        "named": {"mig_profile": "3g.40gb"},
        "share": {"gpus": 0.25},
        "memory": {"gpu_memory_bytes": 9 << 30},
    }
    for name, request in asked.items():
        await service.submit(name, command=STAY, **request)
        await service.phase(name, "running")
    there = instances(driver)
    got = {name: there[(await service.said(name)).strip()] for name in asked}
    assert got == {"named": "3g.40gb", "share": "2g.20gb", "memory": "1g.10gb"}
    profiles = {name: (await service.get(name))["spec"]["mig_profile"] for name in asked}
    assert profiles == got, "what was made of a share can be seen"
    assert (await one_device(service))["allocated_milli"] == 500 + 250 + 125
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await instances_shown(service) != set(got.values()):  # noqa: ASYNC110 - told by REST
            await asyncio.sleep(0.2)


async def test_a_whole_gpu_is_the_largest_instance_and_idle_ones_make_room(
    service: Site, driver: GpuState
) -> None:
    await service.submit("small", command=["true"], mig_profile="1g.10gb")
    await service.phase("small", "succeeded")
    assert list(instances(driver).values()) == ["1g.10gb"], "it stays for the next"
    await service.submit("whole", command=STAY, gpus=1)
    await service.phase("whole", "running")
    seen = (await service.said("whole")).strip()
    assert instances(driver) == {seen: "7g.80gb"}
    await service.submit("later", command=["true"], mig_profile="1g.10gb")
    status = await service.until("later", lambda one: bool(one["reason"]), "is told why")
    assert status["phase"] == "pending"
    await service.ask("POST", "/workloads/vision/whole/suspend")
    await service.phase("later", "succeeded")
    assert list(instances(driver).values()) == ["1g.10gb"]


async def test_a_restart_finds_work_on_its_instances(service: Site, driver: GpuState) -> None:
    await service.submit("first", command=STAY, mig_profile="3g.40gb")
    await service.phase("first", "running")
    seen = (await service.said("first")).strip()
    await service.restart()
    await service.submit("second", command=STAY, mig_profile="3g.40gb")
    await service.phase("second", "running")
    other = (await service.said("second")).strip()
    assert instances(driver) == {seen: "3g.40gb", other: "3g.40gb"}
    assert (await service.get("first"))["status"]["phase"] == "running"
    await service.submit("third", command=STAY, mig_profile="3g.40gb")
    status = await service.until("third", lambda one: bool(one["reason"]), "is told why")
    assert status["phase"] == "pending"


async def test_gpus_stay_divided_while_tasks_have_instances(
    service: Site, driver: GpuState, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.submit("first", command=STAY, mig_profile="3g.40gb")
    await service.phase("first", "running")
    monkeypatch.setitem(service.scheduler.environment, "CARREL_MIG", "off")
    await service.restart()
    assert (await service.get("first"))["status"]["phase"] == "running"
    await service.submit("second", command=STAY, mig_profile="3g.40gb")
    await service.phase("second", "running")
    assert list(instances(driver).values()) == ["3g.40gb", "3g.40gb"]
    for name in ("first", "second"):
        await service.ask("POST", f"/workloads/vision/{name}/suspend")
        await service.phase(name, "stopped")
    await service.restart()
    with pytest.raises(AssertionError, match="no_mig"):
        await service.submit("third", command=STAY, mig_profile="3g.40gb")


async def test_for_an_instance_one_training_is_evicted_whose_end_makes_room(
    service: Site, driver: GpuState
) -> None:
    """Three instances of a quarter: a workspace that needs half of the GPU takes one of them."""
    trainings: dict[str, dict[str, Any]] = {
        "memory": {"gpu_memory_bytes": 19 << 30},
        "first": {"mig_profile": "2g.20gb"},
        "second": {"mig_profile": "2g.20gb"},
    }
    for name, request in trainings.items():
        await service.submit(name, command=STAY, **request)
        await service.phase(name, "running")
    assert sorted(instances(driver).values()) == ["1g.20gb", "2g.20gb", "2g.20gb"]
    await service.submit(
        "desk", command=STAY, mig_profile="3g.40gb", priority="build", preemptible=False
    )
    await service.phase("desk", "running")
    phases = [(await service.get(name))["status"]["phase"] for name in trainings]
    assert sorted(phases) == ["pending", "running", "running"]
    evicted = next(name for name in trainings if phases.pop(0) == "pending")
    assert (await service.get(evicted))["status"]["preemptions"] == 1
    left = sorted(instances(driver).values())
    assert len(left) == 3, "the instance of the evicted one is gone"
    assert "3g.40gb" in left
