"""How much of the machine is ours."""

import os
from pathlib import Path

import psutil
import pytest

from carrel_scheduler.node.machine import cpu_milli, memory_mib
from carrel_scheduler.node.processes import measure_tree

OWN_1 = "3:memory:/outer/inner\n2:cpu,cpuacct:/outer/inner\n"
OWN_2 = "0::/outer/inner\n"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5})


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_machine_itself(tmp_path: Path) -> None:
    assert cpu_milli(tmp_path, "") == 4000
    assert memory_mib(tmp_path, "") == psutil.virtual_memory().total // 2**20


def test_bounds_of_version_1_around_us(tmp_path: Path) -> None:
    write(tmp_path / "cpu,cpuacct" / "outer" / "cpu.cfs_quota_us", "150000")
    write(tmp_path / "cpu,cpuacct" / "outer" / "cpu.cfs_period_us", "100000")
    write(tmp_path / "cpu,cpuacct" / "outer" / "inner" / "cpu.cfs_quota_us", "-1")
    write(tmp_path / "cpu,cpuacct" / "outer" / "inner" / "cpu.cfs_period_us", "100000")
    write(tmp_path / "memory" / "outer" / "inner" / "memory.limit_in_bytes", str(64 << 20))
    write(tmp_path / "memory" / "memory.limit_in_bytes", "9223372036854771712")
    assert cpu_milli(tmp_path, OWN_1) == 1500
    assert memory_mib(tmp_path, OWN_1) == 64


def test_bounds_of_version_2_around_us(tmp_path: Path) -> None:
    write(tmp_path / "outer" / "cpu.max", "50000 100000\n")
    write(tmp_path / "outer" / "inner" / "cpu.max", "max 100000\n")
    write(tmp_path / "outer" / "memory.max", "max\n")
    write(tmp_path / "outer" / "inner" / "memory.max", f"{128 << 20}\n")
    assert cpu_milli(tmp_path, OWN_2) == 500
    assert memory_mib(tmp_path, OWN_2) == 128


def test_use_of_a_process_tree() -> None:
    use = measure_tree(os.getpid())
    assert use is not None
    assert use.cpu_seconds > 0
    assert use.memory_mib > 5
    assert measure_tree(2**22 + 1) is None
