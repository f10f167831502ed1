"""The shipped examples, each stopped in its middle, resumed, and run to the end on CPU.

They pause at each step until they are stopped, so that their middle is not missed, and then run on
as fast as they can. Ray's first attempt saves what three steps would, and begins no Ray.
"""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from contract.service.site import Site, site
from e2e import open_mpi

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "distributed"
GANG: dict[str, Any] = {"kind": "distributed", "tasks": 2}
MPI: dict[str, Any] = GANG | {"rendezvous": {"launcher": "mpi"}}
PAUSE = 'PAUSE = float(os.environ.get("STEP_SECONDS", "0"))'
AT_FIRST = (
    'PAUSE = float(os.environ["STEP_SECONDS"]) if os.environ["CARREL_ATTEMPT"] == "0" else 0.0'
)
THREE_STEPS = """
import os, time
import carrel
if os.environ["CARREL_ATTEMPT"] == "0":
    if os.environ["RANK"] == "0":
        saved = {"step": 3, "sum": 0 + 1 + 4}
        carrel.checkpoint.save(saved, step=3, directory=os.environ["CARREL_CHECKPOINT_DIR"])
    time.sleep(600)
"""
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path, 2) as made:
        yield made


async def interrupted(
    service: Site,
    name: str,
    command: list[str],
    *,
    steps: int,
    pause: float,
    environment: Mapping[str, str] | None = None,
    before: str = "",
    **fields: Any,
) -> str:
    """Submit an example, stop it once it has saved, resume it; returns what it says at its end.

    ``before``: a program that goes before the example.
    """
    script = f"{name}.py"
    text = (EXAMPLES / script).read_text()
    assert PAUSE in text
    uid = await service.submit(
        name.replace("_", "-"),
        command=command,
        files={script: before + text.replace(PAUSE, AT_FIRST)},
        environment={
            "STEPS": str(steps),
            "STEP_SECONDS": str(pause),
            "JAX_PLATFORMS": "cpu",
            **(environment or {}),
        },
        cpu_millicores=500,
        grace_seconds=2.0,
        backoff_limit=0,
        **fields,
    )
    name = name.replace("_", "-")
    saved = service.checkpoints(uid)
    status = await service.until(
        name, lambda now: any(saved.glob("step-*")) or now["phase"] == "failed", "saves"
    )
    assert status["phase"] != "failed", await service.logs(name, index="all")
    await service.ask("POST", f"/workloads/vision/{name}/suspend")
    await service.phase(name, "stopped")
    await service.ask("POST", f"/workloads/vision/{name}/resume")
    status = await service.until(name, lambda now: now["phase"] in ("succeeded", "failed"), "ends")
    said = await service.logs(name, index="all")
    assert status["phase"] == "succeeded", said
    return said


def number_in(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, text
    return int(found[1])


async def test_jax_data_parallel(service: Site) -> None:
    command = ["python", "jax_data_parallel.py"]
    text = await interrupted(service, "jax_data_parallel", command, steps=300, pause=0.3, **GANG)
    assert number_in(r"worker 0 of 2: .* after steps (\d+) to 300", text) > 1
    assert number_in(r"worker 1 of 2: .* after steps (\d+) to 300", text) > 1


@pytest.mark.parametrize("library", ["mpich", "open-mpi"])
async def test_mpi(service: Site, library: str) -> None:
    command = ["mpirun", "-n", "2", "python", "mpi_sum.py"]
    own = {"mpich": dict, "open-mpi": open_mpi.variables}[library]()
    text = await interrupted(
        service, "mpi_sum", command, steps=200, pause=0.3, environment=own, **MPI
    )
    assert {"mpich": "MPICH", "open-mpi": "Open MPI"}[library] in text
    assert number_in(r"rank 0 of 2 on mpi-sum-0: pi is 3.141592 after step (\d+)", text) > 0
    assert number_in(r"rank 1 of 2 on mpi-sum-1: pi is 3.141592 after step (\d+)", text) > 0


async def test_xgboost(service: Site) -> None:
    command = ["python", "xgboost_trees.py"]
    text = await interrupted(service, "xgboost_trees", command, steps=100, pause=0.3, **GANG)
    assert number_in(r"worker 1 of 2: 100 trees, (\d+) of them from before", text) > 0


async def test_ray(service: Site) -> None:
    command = ["python", "ray_tasks.py"]
    text = await interrupted(
        service, "ray_tasks", command, steps=20, pause=0.0, before=THREE_STEPS, **GANG
    )
    assert number_in(r"the sum is 2470, computed on 2 nodes from step (\d+) on", text) == 3


async def test_offline_batch_inference(service: Site) -> None:
    command = ["python", "batch_inference.py"]
    text = await interrupted(service, "batch_inference", command, steps=0, pause=1.0)
    assert number_in(r"1797 predictions in predictions.csv, from row (\d+) on", text) > 0


@pytest.mark.torch
async def test_pytorch(service: Site) -> None:
    command = ["torchrun", "torch_ddp.py"]
    text = await interrupted(service, "torch_ddp", command, steps=300, pause=0.3, **GANG)
    assert number_in(r"worker 1 of 2: .* after steps (\d+) to 300", text) > 1


@pytest.mark.torch
async def test_tensorflow(service: Site) -> None:
    command = ["python", "tensorflow_workers.py"]
    text = await interrupted(service, "tensorflow_workers", command, steps=200, pause=0.3, **GANG)
    assert number_in(r"worker 1 of 2: .* after steps (\d+) to 200", text) > 1
