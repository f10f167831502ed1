"""A task with a fraction of a GPU is kept within its memory, and cannot change that.

The GPUs are those of the test driver, which a task reaches by a volume.
"""

import json
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.contract import Engine, TaskSpec
from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.engine import LocalEngine
from carrel_scheduler.engines.local.gpu_memory import GpuMemory
from carrel_scheduler.node.limiter.library import NoLibrary
from contract.engine.local_engines import AS_ROOT, NODE, LocalEngines
from contract.engine_tasks import a_task, output, run, typed, wait_for_output
from gpu_driver.build import HERE
from gpu_driver.limited import build_cuda
from gpu_driver.state import GpuState

ALLOCATE = "cuda = Cuda(); tell([bool(cuda.alloc(4096)), bool(cuda.alloc(1)), cuda.info()])"
LIMITED = [True, False, [0, 4096]]
FREE = [True, True, [12287, 16384]]


@pytest.fixture
def gpus() -> Iterator[Path]:
    """A volume that everybody reaches: the driver, its state and what programs call it with."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "gpu_driver").mkdir()
        for source in ("cuda.py", "program.py"):
            shutil.copy(HERE / source, folder / "gpu_driver" / source)
        build_cuda(folder)
        GpuState.create(folder / "state")
        (folder / "state").chmod(0o666)
        yield folder


def program(gpus: Path, source: str) -> str:
    """A command that runs a program with nothing in its environment but what finds the driver."""
    known = "LD_LIBRARY_PATH={0} PYTHONPATH={0} CARREL_TEST_GPU_STATE={0}/state".format("$PWD/gpus")
    text = f"from gpu_driver.program import *; {source}"
    return f"env -i PATH=$PATH {known} python -B -S -c {json.dumps(text)}"


def fraction(engines: LocalEngines, gpus: Path, script: str, **fields: Any) -> TaskSpec:
    share: dict[str, Any] = {
        "devices": (0,),
        "device_uuids": (GpuState(gpus / "state").layout.devices[0].uuid.decode(),),
        "gpu_milli": 250,
        "gpu_memory_mib": 4096,
        "volumes": ((str(gpus), "gpus"),),
    }
    return a_task(engines, script, **{**share, **fields})


async def told(engine: Engine, task: TaskSpec) -> Any:
    await run(engine, task)
    said = (await output(engine, task)).decode()
    assert said.strip(), "the task said nothing"
    return json.loads(said.splitlines()[-1])


@pytest.mark.root
@pytest.mark.skipif(not AS_ROOT, reason="without root the environment of the task decides")
async def test_a_fraction_is_limited_whatever_the_environment_says(
    engines: LocalEngines, gpus: Path
) -> None:
    engine = await engines.open()
    assert await told(engine, fraction(engines, gpus, program(gpus, ALLOCATE))) == LIMITED


@pytest.mark.root
@pytest.mark.skipif(not AS_ROOT, reason="without root the files are the task's own")
async def test_a_task_cannot_change_its_limit(engines: LocalEngines, gpus: Path) -> None:
    tries = """
        for file in /dev/carrel-gpu/limits /dev/carrel-gpu/*.so /etc/ld.so.preload; do
            (echo > $file) 2>/dev/null && echo wrote $file
            rm -f $file 2>/dev/null && echo removed $file
            mv $file $file.old 2>/dev/null && echo moved $file
        done
        mv /dev/carrel-gpu /dev/other 2>/dev/null && echo moved
        umount /etc/ld.so.preload 2>/dev/null && echo unmounted
        rm -f /dev/carrel-gpu/usage 2>/dev/null && echo removed the account
        export CARREL_GPU_LIMIT_FOLDER=/nonexistent LD_PRELOAD=
    """
    engine = await engines.open()
    script = f"{textwrap.dedent(tries)}\n{program(gpus, ALLOCATE)}"
    task = fraction(engines, gpus, script)
    await run(engine, task)
    said = (await output(engine, task)).decode().splitlines()
    assert [json.loads(line) for line in said] == [LIMITED]


@pytest.mark.root
@pytest.mark.skipif(not AS_ROOT, reason="without root the environment of the terminal decides")
async def test_a_terminal_beside_the_task_shares_its_limit(
    engines: LocalEngines, gpus: Path
) -> None:
    engine = await engines.open()
    hold = "cuda = Cuda(); tell(bool(cuda.alloc(4000))); import time; time.sleep(600)"
    task = fraction(engines, gpus, f"{program(gpus, hold)}; true")
    await engine.start(task)
    await wait_for_output(engine, task, b"true")
    script = program(gpus, "cuda = Cuda(); tell([bool(cuda.alloc(96)), bool(cuda.alloc(1))])")
    told = await typed(engine, task, "bash", "-c", f"cd $CARREL_TASK_DIR; {script}")
    assert json.loads(told) == [True, False]
    await engine.stop(task.id, 0.0)


async def test_whole_gpus_and_tasks_without_limits_see_all(
    engines: LocalEngines, gpus: Path
) -> None:
    engine = await engines.open()
    whole = fraction(engines, gpus, program(gpus, ALLOCATE), gpu_milli=1000, gpu_memory_mib=0)
    assert await told(engine, whole) == FREE


def test_an_ordinary_account_is_limited_by_the_environment(
    engines: LocalEngines, gpus: Path
) -> None:
    memory = GpuMemory()
    account = Account(
        name="ada", uid=os.getuid(), gid=os.getgid(), home=gpus, shared=True, listed=True
    )
    task = fraction(engines, gpus, "", environment={"LD_PRELOAD": "libm.so.6"})
    memory.prepare(gpus, task, account)
    told = dict(memory.environment(task, account, gpus))
    assert told["LD_PRELOAD"].endswith("libcarrel_gpu_limit.so:libm.so.6")
    script = program(gpus, ALLOCATE).replace("env -i PATH=$PATH", "env")
    script = script.replace("$PWD/gpus", str(gpus))
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, **told}, stdout=subprocess.PIPE, check=True
    )
    assert json.loads(done.stdout) == LIMITED


@pytest.mark.parametrize("switched_off", [True, False])
async def test_without_the_limiter_a_fraction_runs_and_that_is_said(
    engines: LocalEngines, gpus: Path, switched_off: bool
) -> None:
    def missing() -> Path:
        raise NoLibrary("no C compiler is installed")

    memory = GpuMemory(enabled=not switched_off, find=missing)
    engine = LocalEngine(engines.root, NODE, gpu_memory=memory)
    assert await told(engine, fraction(engines, gpus, program(gpus, ALLOCATE))) == FREE
    assert ("switched off" if switched_off else "no C compiler") in memory.summary()
    await engine.close()
