"""Tasks with MIG instances: each sees its own, also after restarts, and takes no other's."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from carrel_scheduler.engines.contract import (
    EngineError,
    NotOnThisNode,
    TaskId,
    TaskPhase,
    TaskSpec,
)
from carrel_scheduler.engines.local import task_state
from carrel_scheduler.engines.local.engine import LocalEngine
from carrel_scheduler.node.mig import NvmlMig
from carrel_scheduler.node.nvml import open_nvml
from contract.engine.local_engines import LocalEngines
from contract.engine_tasks import a_task, output, run, wait_for, wait_for_output
from gpu_driver.session import machine
from gpu_driver.state import MIB, GpuState

SHOW = "echo $CUDA_VISIBLE_DEVICES"
STAY = f"{SHOW}; exec sleep 600"


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[GpuState]:
    with machine(tmp_path / "gpus", devices=1, memory=81_559 * MIB) as state:
        state.layout.devices[0].name = b"NVIDIA H100 80GB HBM3"
        assert open_nvml(pynvml)
        yield state


@pytest.fixture
def mig(gpus: GpuState) -> NvmlMig:
    assert gpus.layout.device_count == 1
    found = NvmlMig(pynvml)
    found.enable()
    return found


@pytest.fixture
def device(gpus: GpuState) -> str:
    return str(gpus.layout.devices[0].uuid.decode())


def instance(
    engines: LocalEngines, device: str, profile: str, slots: int, script: str = SHOW, **more: Any
) -> TaskSpec:
    return a_task(
        engines,
        script,
        devices=(0,),
        device_uuids=(device,),
        mig_profile=profile,
        mig_slots=slots,
        **more,
    )


async def shown(engine: LocalEngine, task: TaskSpec) -> str:
    await wait_for_output(engine, task, b"MIG-")
    return (await output(engine, task)).decode().strip()


async def test_each_task_sees_the_instance_that_was_made_for_it(
    engines: LocalEngines, mig: NvmlMig, device: str
) -> None:
    """Also where many start at once, and whatever the user's environment says."""
    engine = await engines.open_divided(mig)
    lies = {"environment": {"CUDA_VISIBLE_DEVICES": device}}
    tasks = [
        instance(engines, device, "1g.10gb", 1 << slot, STAY, uid=f"w{slot}", **lies)
        for slot in range(7)
    ]
    await asyncio.gather(*(engine.start(task) for task in tasks))
    seen = {await shown(engine, task) for task in tasks}
    made = {one.uuid: one.bits for one in mig.instances(device)}
    assert seen == made.keys()
    assert sorted(made.values()) == [1 << slot for slot in range(7)]


async def test_an_instance_outlives_its_task_and_is_used_again(
    engines: LocalEngines, mig: NvmlMig, device: str
) -> None:
    engine = await engines.open_divided(mig)
    first = instance(engines, device, "3g.40gb", 0xF0, uid="a")
    assert (await run(engine, first)).exit_code == 0
    [kept] = mig.instances(device)
    again = instance(engines, device, "3g.40gb", 0xF0, uid="b")
    await run(engine, again)
    assert (await output(engine, again)).decode().strip() == kept.uuid
    whole = instance(engines, device, "7g.80gb", 0xFF, uid="c")
    await run(engine, whole)
    [only] = mig.instances(device)
    assert (only.profile, (await output(engine, whole)).decode().strip()) == ("7g.80gb", only.uuid)


async def test_a_task_of_an_earlier_engine_keeps_its_instance(
    engines: LocalEngines, mig: NvmlMig, device: str
) -> None:
    """It has no process on the GPU yet: the driver would let its instance go."""
    held = instance(engines, device, "2g.20gb", 0b11, STAY, uid="a")
    before = await engines.open_divided(mig)
    await before.start(held)
    own = await shown(before, held)
    await before.close()
    engine = await engines.open_divided(mig)
    with pytest.raises(NotOnThisNode, match="is in use"):
        await engine.start(instance(engines, device, "7g.80gb", 0xFF, uid="b"))
    assert [one.uuid for one in mig.instances(device)] == [own]
    stream = engine.watch()
    await engine.stop(held.id, 0)
    await wait_for(engine, stream, held, TaskPhase.ENDED)
    assert (await run(engine, instance(engines, device, "7g.80gb", 0xFF, uid="c"))).exit_code == 0


async def test_what_somebody_elses_program_uses_is_left_alone(
    engines: LocalEngines, gpus: GpuState, mig: NvmlMig, device: str
) -> None:
    foreign = mig.create(device, "3g.40gb", 0x0F)
    gpus.list_process(0, os.getpid(), memory=MIB)
    gpus.layout.processes[0].use[0].gpu_instance = foreign.number
    engine = await engines.open_divided(mig)
    for profile, slots in (("7g.80gb", 0xFF), ("3g.40gb", 0x0F)):
        with pytest.raises(NotOnThisNode, match="is in use"):
            await engine.start(instance(engines, device, profile, slots, uid=profile[0]))
    assert mig.instances(device)[0].uuid == foreign.uuid
    assert await engine.list() == []


async def test_a_start_that_the_driver_refuses_leaves_nothing(
    engines: LocalEngines, gpus: GpuState, mig: NvmlMig, device: str
) -> None:
    engine = await engines.open_divided(mig)
    gpus.layout.devices[0].mig_failures = 1
    task = instance(engines, device, "3g.40gb", 0xF0, uid="a")
    with pytest.raises(NotOnThisNode, match="cannot be made"):
        await engine.start(task)
    assert await engine.list() == []
    assert (await run(engine, task)).exit_code == 0, "it may be tried again"


async def test_without_divided_gpus_it_is_refused(engines: LocalEngines, device: str) -> None:
    engine = await engines.open()
    with pytest.raises(EngineError, match="start Carrel with --mig"):
        await engine.start(instance(engines, device, "1g.10gb", 1))


async def test_the_record_of_a_task_names_its_instance(
    engines: LocalEngines, mig: NvmlMig, device: str
) -> None:
    engine = await engines.open_divided(mig)
    task = instance(engines, device, "1g.10gb", 1, STAY)
    await engine.start(task)
    record = task_state.read_record(engines.folder())
    assert record.mig_instance == await shown(engine, task)
    assert task.id == TaskId("w1", 0, 0)
