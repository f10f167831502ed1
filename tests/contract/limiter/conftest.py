"""Programs that run with the limiter preloaded, on the GPUs of the test driver."""

from pathlib import Path

import pytest

from carrel_scheduler.node.limiter.library import find_library
from gpu_driver.limited import LimitedTask, build_cuda
from gpu_driver.state import GpuState


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with libcuda.so.1."""
    return build_cuda(tmp_path_factory.mktemp("drivers"))


@pytest.fixture(scope="session")
def limiter() -> Path:
    return find_library()


@pytest.fixture
def gpus(tmp_path: Path) -> GpuState:
    """Two GPUs of 16 GiB whose contexts take nothing."""
    return GpuState.create(tmp_path / "gpus", devices=2)


@pytest.fixture
def task(tmp_path: Path, gpus: GpuState, limiter: Path, drivers: Path) -> LimitedTask:
    """A task that may hold 1024 MiB of GPU 0."""
    return LimitedTask(tmp_path / "task", gpus, limiter, drivers)
