"""What a service says of the limits of GPU memory on its machine."""

import os
from pathlib import Path

from carrel_scheduler.engines.local.cgroups import find_limiter
from carrel_scheduler.node.contract import DRIVER_LIMIT, LIMITER, fractions_kept_by
from contract.service.site import site
from gpu_driver.session import library, machine


async def test_a_machine_says_what_limits_fractions(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    limiter = find_limiter(state / "engine")
    has_groups = os.geteuid() == 0 and limiter.unified("") is not None
    limiter.close()
    with machine(tmp_path / "gpus", devices=1) as driver:
        driver.has_limits()
        more = {
            "CARREL_GPUS": "",
            "CARREL_TEST_GPU_STATE": str(driver.path),
            "LD_LIBRARY_PATH": str(library().parent),
        }
        async with site(state, 1, more=more) as service:
            [node] = (await service.ask("GET", "/nodes"))["items"]
    kept_by = (LIMITER, DRIVER_LIMIT) if has_groups else (LIMITER,)
    assert node["fractions"] == fractions_kept_by(*kept_by)
