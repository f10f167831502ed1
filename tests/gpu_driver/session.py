"""The test driver of NVML in a process: the real `pynvml` finds it as if it were the machine's own.

The library has the soname of the real one and is loaded first, so that what `pynvml` opens by that
name is this one.
"""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pynvml

from gpu_driver.build import HERE, build
from gpu_driver.state import GpuState

NAME = "libnvidia-ml.so.1"


@cache
def library() -> Path:
    """The compiled library, in a folder that lasts as long as this process."""
    folder = tempfile.TemporaryDirectory(prefix="carrel-nvml-")
    library.folder = folder  # type: ignore[attr-defined]
    built = build(HERE / "nvml.c", Path(folder.name) / NAME, f"-Wl,-soname,{NAME}")
    ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)
    return built


@contextmanager
def machine(path: Path, *, devices: int, memory: int = 24576 << 20) -> Iterator[GpuState]:
    """A machine with so many GPUs, until the block ends."""
    library()
    before = os.environ.get("CARREL_TEST_GPU_STATE")
    os.environ["CARREL_TEST_GPU_STATE"] = str(path)
    try:
        yield GpuState.create(path, devices=devices, memory=memory)
    finally:
        if before is None:
            del os.environ["CARREL_TEST_GPU_STATE"]
        else:
            os.environ["CARREL_TEST_GPU_STATE"] = before
        with suppress(pynvml.NVMLError):  # nobody began a session
            pynvml.nvmlShutdown()  # type: ignore[no-untyped-call]
