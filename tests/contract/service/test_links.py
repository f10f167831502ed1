"""The links of real GPUs, from the driver to the devices that a task gets."""

from pathlib import Path

from contract.service.site import site
from gpu_driver.session import library, machine
from gpu_driver.state import MIB


async def test_a_task_with_two_gpus_gets_the_pair_that_is_linked(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with machine(tmp_path / "gpus", devices=4, memory=16_384 * MIB) as driver:
        for first, second in ((1, 3), (3, 1)):
            link = driver.layout.devices[first].links[0]
            link.active, link.remote_bus_id = 1, driver.layout.devices[second].bus_id
        for index in range(4):
            driver.layout.devices[index].name = b"NVIDIA A100-SXM4-80GB"
        more = {
            "CARREL_GPUS": "",
            "CARREL_TEST_GPU_STATE": str(tmp_path / "gpus"),
            "LD_LIBRARY_PATH": str(library().parent),
        }
        async with site(tmp_path / "state", 4, more=more) as service:
            [node] = (await service.ask("GET", "/nodes"))["items"]
            assert node["links"] == [{"first": 1, "second": 3, "hops": 0}]
            await service.submit("pair", gpus=2, command=["sleep", "600"], gpu_types=["a100"])
            [task] = (await service.phase("pair", "running"))["tasks"]
            assert sorted(task["devices"]) == [1, 3]
