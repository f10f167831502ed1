"""What the driver takes for contexts counts in the part of the task whose processes have them."""

import json
import signal
import subprocess
from typing import Any

import pytest

from carrel_scheduler.node.limiter.folder import read_usage
from gpu_driver.limited import LimitedTask
from gpu_driver.state import MIB, GpuState


@pytest.fixture
def task(task: LimitedTask, gpus: GpuState) -> LimitedTask:
    """A task that may hold 1024 MiB of GPU 0, where a context takes 300."""
    gpus.layout.devices[0].context_bytes = 300 * MIB
    task.sees_nvml()
    return task


def held(task: LimitedTask) -> int:
    return read_usage(task.folder / "usage")[0]


def heard(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize("by_proc_address", ["False", "True"])
def test_a_context_counts_from_its_creation_to_its_end(
    task: LimitedTask, by_proc_address: str
) -> None:
    script = f"""
        cuda = Cuda(by_proc_address={by_proc_address})
        found = [cuda.info()[0], bool(cuda.alloc(700)), bool(cuda.alloc(50))]
        cuda.must("cuCtxDestroy_v2", cuda.contexts[0])
        again = Cuda(by_proc_address={by_proc_address})
        tell([*found, again.info()[0], bool(again.alloc(725)), bool(again.alloc(724))])
    """
    assert task.run(script) == [724, True, False, 724, False, True]


def test_a_primary_context_counts_once_however_often_it_is_retained(task: LimitedTask) -> None:
    script = """
        cuda = Cuda(1)
        context = c_void_p()
        for _ in range(3):
            cuda.must("cuDevicePrimaryCtxRetain", byref(context), 0)
        cuda.must("cuCtxSetCurrent", context)
        free = [cuda.info()[0]]
        for _ in range(2):
            cuda.must("cuDevicePrimaryCtxRelease_v2", 0)
        free.append(cuda.info()[0])
        cuda.must("cuDevicePrimaryCtxRelease_v2", 0)
        tell(free)
        wait()
    """
    program = task.start(script)
    assert heard(program) == [724, 724]
    assert held(task) == 0
    program.communicate("\n", timeout=60)


def test_each_process_of_a_task_has_its_own_and_a_killed_one_gives_it_back(
    task: LimitedTask,
) -> None:
    script = "cuda = Cuda()\ntell(cuda.info()[0])\nwait()\ntell(cuda.info()[0])"
    first = task.start(script)
    assert heard(first) == 724
    second = task.start(script)
    assert heard(second) == 424
    second.send_signal(signal.SIGKILL)
    second.communicate(timeout=60)
    assert json.loads(first.communicate("\n", timeout=60)[0]) == 724


def test_processes_that_begin_together_do_not_measure_each_other(task: LimitedTask) -> None:
    task.limit(4096)
    programs = [task.start("cuda = Cuda()\ntell(0)\nwait()") for _ in range(6)]
    assert [heard(one) for one in programs] == [0] * 6
    assert held(task) == 6 * 300
    for one in programs:
        one.communicate("\n", timeout=60)


def test_what_neighbours_hold_counts_for_them_alone(task: LimitedTask) -> None:
    other = LimitedTask.beside(task, "other")
    neighbour = other.start("cuda = Cuda()\ncuda.alloc(600)\ntell(0)\nwait()")
    heard(neighbour)
    assert task.run("tell(Cuda().info()[0])") == 724
    neighbour.communicate("\n", timeout=60)


def test_a_context_beyond_the_part_is_made_and_leaves_nothing(task: LimitedTask) -> None:
    task.limit(200)
    script = "cuda = Cuda()\ntell([cuda.info()[0], bool(cuda.alloc(1))])"
    assert task.run(script) == [0, False]


def test_without_nvml_no_context_counts(task: LimitedTask) -> None:
    plain = LimitedTask.beside(task, "plain")
    drivers = task.environment["LD_LIBRARY_PATH"].split(":")[0]
    plain.environment["LD_LIBRARY_PATH"] = drivers
    assert plain.run("tell(Cuda().info()[0])") == 1024
