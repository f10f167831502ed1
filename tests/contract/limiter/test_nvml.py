"""NVML, as `nvidia-smi` and `pynvml` ask it, shows the slice; the real `pynvml` asks here."""

from pathlib import Path

import pynvml
import pytest

from gpu_driver.build import HERE, build
from gpu_driver.limited import LimitedTask
from gpu_driver.state import MIB

ASK = """
    import pynvml
    pynvml.nvmlInit()
    def seen(index):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        old = pynvml.nvmlDeviceGetMemoryInfo(handle)
        new = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return [[one.total // MIB, one.used // MIB, one.free // MIB] for one in (old, new)]
"""


@pytest.fixture
def nvml(drivers: Path) -> Path:
    target = drivers / "libnvidia-ml.so.1"
    if not target.exists():
        build(HERE / "nvml.c", target, f"-Wl,-soname,{target.name}")
    return target


def ask(task: LimitedTask, script: str) -> object:
    places = f"{HERE.parent}:{Path(pynvml.__file__).parent}"
    return task.run(ASK + script, PYTHONPATH=places)


@pytest.mark.usefixtures("nvml")
def test_the_slice_is_the_whole_for_both_versions_of_the_query(task: LimitedTask) -> None:
    holder = task.start("cuda = Cuda()\ntell(bool(cuda.alloc(600)))\nwait()")
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == "true"
    task.overhead(24)
    assert ask(task, "    tell(seen(0))\n") == [[1024, 624, 400]] * 2
    holder.communicate("\n", timeout=30)
    assert ask(task, "    tell(seen(0))\n") == [[1024, 24, 1000]] * 2


@pytest.mark.usefixtures("nvml")
def test_other_gpus_are_shown_as_they_are(task: LimitedTask) -> None:
    task.gpus.layout.devices[1].memory_used = 5 * MIB
    assert ask(task, "    tell(seen(1))\n") == [[16384, 5, 16379]] * 2
