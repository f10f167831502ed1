"""Where the driver limits memory by control group, no program of a task goes round its part.

The groups are real ones, of a cgroup2 file system that the test mounts; the driver is that of the
tests, which finds the group of each process in /proc. The limiter is passed by a dynamic linker
that reads another file than /etc/ld.so.preload.
"""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import TaskPhase
from carrel_scheduler.engines.local.cgroups import Limiter
from carrel_scheduler.engines.local.engine import LocalEngine
from carrel_scheduler.engines.local.gpu_memory import DriverLimits, GpuMemory
from carrel_scheduler.node.limiter.library import NoLibrary
from carrel_scheduler.node.memory_limits import NO_LIMITS
from contract.engine.local_engines import AS_ROOT, LocalEngines
from contract.engine.test_gpu_memory import FREE, LIMITED, fraction, gpus, program, told
from contract.engine_tasks import output, typed, wait_for, wait_for_output
from gpu_driver.groups import mounted_groups
from gpu_driver.session import machine
from gpu_driver.state import MIB, GpuState

__all__ = ["gpus"]

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not AS_ROOT, reason="the driver takes limits from root only"),
]

OWN_LINKER = """
    for known in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do
        [ ! -e linker ] && [ -e $known ] &&
            sed 's#/etc/ld.so.preload#/etc/ld.so.another#' $known > linker && chmod +x linker
    done
"""
ALLOCATE = "cuda = Cuda(); tell([bool(cuda.alloc(4096)), bool(cuda.alloc(1)), cuda.info()])"
LIMITER_ALONE = "Fractions of GPUs are kept within their part of the memory by the limiter."


def past_the_limiter(gpus: Path, source: str) -> str:
    """A script that runs a program without the limiter."""
    command = program(gpus, source).replace("python", "./linker $(command -v python)", 1)
    return f"{OWN_LINKER}\n{command}"


@pytest.fixture
def state(gpus: Path) -> Iterator[GpuState]:
    """The GPUs, in this process and in tasks."""
    with machine(gpus / "state", devices=1, memory=16384 * MIB) as found:
        (gpus / "state").chmod(0o666)
        yield found


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Limiter]:
    """Control groups of version 2 below one of the test's own."""
    name = f"carrel-test-{os.getpid()}"
    kept = f"{name}/kept"  # else the last task would remove the folder
    with mounted_groups(tmp_path / "groups", kept) as folder:
        yield Limiter({"unified": folder / name}, version=2)


def group_name() -> str:
    return f"/carrel-test-{os.getpid()}/w1-0-0"


async def open_engine(engines: LocalEngines, groups: Limiter, memory: GpuMemory) -> LocalEngine:
    return await engines.open_limited(gpu_memory=memory, limiter=groups)


async def test_a_program_that_passes_the_limiter_meets_the_drivers_limit(
    groups: Limiter, engines: LocalEngines, gpus: Path, state: GpuState
) -> None:
    state.has_limits()
    memory = GpuMemory(driver=DriverLimits(groups))
    engine = await open_engine(engines, groups, memory)
    script = past_the_limiter(gpus, ALLOCATE)
    assert await told(engine, fraction(engines, gpus, script)) == LIMITED
    assert "by the limiter and the driver's limit" in memory.summary()
    await engine.close()


async def test_without_the_drivers_limit_such_a_program_has_the_whole_gpu(
    groups: Limiter, engines: LocalEngines, gpus: Path, state: GpuState
) -> None:
    assert state.limits() == {}
    memory = GpuMemory(driver=DriverLimits(groups))
    engine = await open_engine(engines, groups, memory)
    script = past_the_limiter(gpus, ALLOCATE)
    assert await told(engine, fraction(engines, gpus, script)) == FREE
    assert memory.summary() == LIMITER_ALONE
    await engine.close()


async def test_all_processes_of_a_task_and_its_terminals_share_the_limit(
    groups: Limiter, engines: LocalEngines, gpus: Path, state: GpuState
) -> None:
    state.has_limits()
    engine = await open_engine(engines, groups, GpuMemory(driver=DriverLimits(groups)))
    hold = "cuda = Cuda(); tell(bool(cuda.alloc(4000))); import time; time.sleep(600)"
    task = fraction(engines, gpus, f"{past_the_limiter(gpus, hold)}; true")
    await engine.start(task)
    await wait_for_output(engine, task, b"true")
    assert state.limits() == {(group_name(), 0): 4096 * MIB}
    script = past_the_limiter(
        gpus, "cuda = Cuda(); tell([bool(cuda.alloc(96)), bool(cuda.alloc(1))])"
    )
    told = await typed(engine, task, "bash", "-c", f"cd $CARREL_TASK_DIR; {script}")
    assert json.loads(told) == [True, False]
    await engine.stop(task.id, 0.0)
    await engine.close()


async def test_the_limiter_and_the_driver_agree(
    groups: Limiter, engines: LocalEngines, gpus: Path, state: GpuState
) -> None:
    state.has_limits()
    engine = await open_engine(engines, groups, GpuMemory(driver=DriverLimits(groups)))
    script = program(gpus, ALLOCATE)
    assert await told(engine, fraction(engines, gpus, script)) == LIMITED
    await engine.close()


async def test_the_driver_limits_alone_where_the_limiter_is_missing(
    groups: Limiter, engines: LocalEngines, gpus: Path, state: GpuState
) -> None:
    def missing() -> Path:
        raise NoLibrary("no C compiler is installed")

    state.has_limits()
    memory = GpuMemory(find=missing, driver=DriverLimits(groups))
    engine = await open_engine(engines, groups, memory)
    assert await told(engine, fraction(engines, gpus, program(gpus, ALLOCATE))) == LIMITED
    assert memory.summary().endswith("by the driver's limit.")
    await engine.close()


async def test_whole_gpus_and_what_is_switched_off_have_no_limit(
    groups: Limiter, engines: LocalEngines, gpus: Path, state: GpuState
) -> None:
    state.has_limits()
    off = GpuMemory(enabled=False, driver=DriverLimits(groups))
    engine = await open_engine(engines, groups, off)
    assert await told(engine, fraction(engines, gpus, program(gpus, ALLOCATE))) == FREE
    assert "switched off" in off.summary()
    await engine.close()
    engine = await open_engine(engines, groups, GpuMemory(driver=DriverLimits(groups)))
    whole = fraction(engines, gpus, program(gpus, ALLOCATE), uid="w2", gpu_memory_mib=0)
    assert await told(engine, whole) == FREE
    await engine.close()
    assert state.limits() == {}


async def test_a_task_whose_limit_the_driver_refuses_runs_with_the_limiter(
    groups: Limiter,
    engines: LocalEngines,
    gpus: Path,
    state: GpuState,
    caplog: pytest.LogCaptureFixture,
) -> None:
    state.has_limits()
    memory = GpuMemory(driver=DriverLimits(groups))
    assert "the driver's limit" in memory.summary()
    state.has_limits(answer=999)
    engine = await open_engine(engines, groups, memory)
    with caplog.at_level(logging.WARNING):
        assert await told(engine, fraction(engines, gpus, program(gpus, ALLOCATE))) == LIMITED
    assert "task w1-0-0 is not limited by the driver" in caplog.text
    assert "refused its limit of a task: the driver answered" in memory.summary()
    await engine.close()


async def test_a_driver_without_limits_is_told_once(
    groups: Limiter, state: GpuState, caplog: pytest.LogCaptureFixture
) -> None:
    assert state.layout.limits_answer
    memory = GpuMemory(driver=DriverLimits(groups))
    with caplog.at_level(logging.INFO):
        assert [memory.summary(), memory.summary()] == [LIMITER_ALONE] * 2
    assert caplog.text.count(NO_LIMITS) == 1


async def test_the_next_scheduler_limits_tasks_that_began_without_a_limit(
    groups: Limiter, engines: LocalEngines, gpus: Path, state: GpuState
) -> None:
    first = await open_engine(engines, groups, GpuMemory(driver=DriverLimits(groups)))
    waits = "echo begun; while [ ! -e go ]; do sleep 0.1; done"
    task = fraction(engines, gpus, f"{waits}; {past_the_limiter(gpus, ALLOCATE)}")
    await first.start(task)
    await wait_for_output(first, task, b"begun")
    assert state.limits() == {}
    await first.close()
    state.has_limits()
    second = await open_engine(engines, groups, GpuMemory(driver=DriverLimits(groups)))
    await second.list()
    assert state.limits() == {(group_name(), 0): 4096 * MIB}
    stream = second.watch()
    (engines.folder() / "work" / "go").touch()
    await wait_for(second, stream, task, TaskPhase.ENDED)
    assert json.loads((await output(second, task)).splitlines()[-1]) == LIMITED
    await second.close()
