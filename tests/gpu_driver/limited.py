"""A task whose programs run with the limiter preloaded, on the GPUs of the test drivers."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from carrel_scheduler.node.limiter.folder import limits_text, prepare_usage, write_overhead
from gpu_driver.build import HERE, build
from gpu_driver.session import library
from gpu_driver.state import GpuState


def build_cuda(folder: Path) -> Path:
    """Compiles the test driver into a folder; returns the folder."""
    flags = ("-fvisibility=hidden", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1", "-ldl")
    build(HERE / "cuda.c", folder / "libcuda.so.1", *flags)
    return folder


class LimitedTask:
    """Programs of one task with a limit for GPU 0."""

    def __init__(self, folder: Path, gpus: GpuState, limiter: Path, drivers: Path) -> None:
        self.folder, self.gpus = folder, gpus
        folder.mkdir()
        self.limit(1024)
        prepare_usage(folder / "usage", None)
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(limiter),
            "LD_LIBRARY_PATH": str(drivers),
            "CARREL_GPU_LIMIT_FOLDER": str(folder),
            "CARREL_TEST_GPU_STATE": str(gpus.path),
            "PYTHONPATH": str(HERE.parent),
        }

    def limit(self, *mib: int) -> None:
        """Sets the limits of the first GPUs."""
        uuids = (device.uuid.decode() for device in self.gpus.layout.devices)
        (self.folder / "limits").write_text(limits_text(dict(zip(uuids, mib, strict=False))))

    @classmethod
    def beside(cls, task: "LimitedTask", name: str) -> "LimitedTask":
        """A second task on the same GPUs."""
        library, drivers = task.environment["LD_PRELOAD"], task.environment["LD_LIBRARY_PATH"]
        return cls(task.folder.parent / name, task.gpus, Path(library), Path(drivers))

    def sees_nvml(self) -> None:
        """Let its programs find NVML's library, as with the capability `utility`."""
        folders = (self.environment["LD_LIBRARY_PATH"], str(library().parent))
        self.environment["LD_LIBRARY_PATH"] = os.pathsep.join(folders)

    def overhead(self, mib: int) -> None:
        """Tells what the driver holds of GPU 0 besides allocations, as the node agent does."""
        write_overhead(self.folder / "usage", [mib])

    def start(self, script: str, **environment: str) -> subprocess.Popen[str]:
        """Starts a program; it prints JSON with `tell`, and `wait` waits for its standard input."""
        prelude = "from gpu_driver.program import *\n"
        return subprocess.Popen(
            [sys.executable, "-S", "-c", prelude + textwrap.dedent(script)],
            env=self.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, **environment: str) -> Any:
        """Run a program, which has to succeed; returns what it printed last."""
        process = self.start(script, **environment)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return json.loads(output.splitlines()[-1])
