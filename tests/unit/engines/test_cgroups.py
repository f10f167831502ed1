"""Limits as files of control groups, in a folder that poses as their file system."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskSpec
from carrel_scheduler.engines.local import cgroups
from carrel_scheduler.engines.local.cgroups import find_limiter

ROOT = Path("/var/lib/carrel/engine")


def task(cpu_milli: int = 0, cpu_limit_milli: int = 0, memory_mib: int = 0) -> TaskSpec:
    return TaskSpec(
        id=TaskId("w1", 0, 0),
        name="t",
        project="p",
        user="ada",
        node="n",
        cpu_milli=cpu_milli,
        cpu_limit_milli=cpu_limit_milli,
        memory_mib=memory_mib,
    )


def version_1(tmp_path: Path) -> Path:
    for name in ("cpu", "memory"):
        (tmp_path / name).mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("")
    return tmp_path


CONTROLLERS = "cpu memory pids"


def version_2(
    tmp_path: Path, *, enabled: str = "cpu memory", controllers: str = CONTROLLERS
) -> Path:
    for folder in (tmp_path, tmp_path / "user" / "scope"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.subtree_control").write_text(enabled)
        (folder / "cgroup.procs").write_text("11\n12\n")
        (folder / "cgroup.controllers").write_text(controllers)
    return tmp_path


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """New groups come with a control file, as the kernel's do."""
    real = Path.mkdir

    def mkdir(path: Path, *args: Any, **options: Any) -> None:
        real(path, *args, **options)
        if not (path / "cgroup.subtree_control").exists():
            (path / "cgroup.subtree_control").write_text("")
            above = path.parent / "cgroup.controllers"
            (path / above.name).write_text(above.read_text() if above.exists() else CONTROLLERS)

    monkeypatch.setattr(Path, "mkdir", mkdir)


def test_processes_are_counted_where_the_machine_can(tmp_path: Path) -> None:
    system = version_1(tmp_path)
    assert not find_limiter(ROOT, system=system, own="").counts_processes
    (system / "pids").mkdir()
    limiter = find_limiter(ROOT, system=system, own="")
    limiter.make(task(), 4096)
    assert limiter.counts_processes
    group = system / "pids" / cgroups.base_name(ROOT) / "w1-0-0"
    assert (group / "pids.max").read_text() == "4096"


def test_version_1_sets_both_hierarchies(tmp_path: Path) -> None:
    system = version_1(tmp_path)
    limiter = find_limiter(ROOT, system=system, own="")
    groups = limiter.make(task(500, 1500, 512), 0)
    base = cgroups.base_name(ROOT)
    cpu, memory = (system / name / base / "w1-0-0" for name in ("cpu", "memory"))
    assert groups.folders == [str(cpu), str(memory)]
    assert groups.oom_files == [str(memory / "memory.oom_control")]
    assert (cpu / "cpu.shares").read_text() == "512"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "150000"
    assert (cpu / "cpu.cfs_period_us").read_text() == "100000"
    assert (memory / "memory.limit_in_bytes").read_text() == str(512 * 1024 * 1024)
    assert limiter.enforces


def test_tasks_may_read_their_limits_whatever_our_mask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        groups = find_limiter(ROOT, system=version_1(tmp_path), own="").make(task(), 0)
    finally:
        os.umask(before)
    for folder in map(Path, groups.folders):
        assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o755] * 2


def test_no_limit_is_no_setting(tmp_path: Path) -> None:
    system = version_1(tmp_path)
    groups = find_limiter(ROOT, system=system, own="").make(task(), 0)
    assert [list(Path(folder).iterdir()) for folder in groups.folders] == [[], []]


@pytest.mark.usefixtures("kernel")
def test_version_2_at_the_top(tmp_path: Path) -> None:
    limiter = find_limiter(ROOT, system=version_2(tmp_path), own="0::/user/scope\n")
    groups = limiter.make(task(100, 500, 64), 99)
    (folder,) = (Path(name) for name in groups.folders)
    assert folder == tmp_path / cgroups.base_name(ROOT) / "w1-0-0"
    assert (folder / "cpu.weight").read_text() == "4"
    assert (folder / "cpu.max").read_text() == "50000 100000"
    assert (folder / "memory.max").read_text() == str(64 * 1024 * 1024)
    assert (folder / "memory.oom.group").read_text() == "1"
    assert (folder.parent / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (folder / "pids.max").read_text() == "99"
    assert groups.oom_files == [str(folder / "memory.events")]


@pytest.mark.usefixtures("kernel")
def test_version_2_lets_tasks_have_limits_of_gpu_memory(tmp_path: Path) -> None:
    system = version_2(tmp_path, controllers=f"{CONTROLLERS} dmem")
    limiter = find_limiter(ROOT, system=system, own="0::/user/scope\n")
    base = tmp_path / cgroups.base_name(ROOT)
    for group in (tmp_path, base):
        assert (group / "cgroup.subtree_control").read_text() == "+dmem"
    assert limiter.unified("w1-0-0") == base / "w1-0-0"


@pytest.mark.usefixtures("kernel")
def test_version_2_in_a_delegated_group_moves_its_processes_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = version_2(tmp_path, enabled="")
    monkeypatch.setattr(cgroups, "_writable", lambda folder: folder != system)
    limiter = find_limiter(ROOT, system=system, own="0::/user/scope\n")
    own = system / "user" / "scope"
    assert (own / "carrel-service" / "cgroup.procs").read_text() == "12"
    assert (own / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    (folder,) = limiter.make(task(100, 500, 64), 0).folders
    assert Path(folder).parent.parent == own


def test_where_nothing_is_allowed_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "_writable", lambda _: False)
    (tmp_path / "none").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one").mkdir()
    for system, words in (
        (tmp_path / "none", "no control groups"),
        (version_2(tmp_path / "two"), "Delegate=yes"),
        (version_1(tmp_path / "one"), "run as root"),
    ):
        limiter = find_limiter(ROOT, system=system, own="0::/user/scope\n")
        assert not limiter.enforces
        assert limiter.summary.startswith("CPU and memory limits are not enforced: ")
        assert words in limiter.summary
        assert limiter.make(task(100, 500, 64), 0).folders == []


def test_a_limit_that_the_kernel_refuses_is_an_error(tmp_path: Path) -> None:
    system = version_1(tmp_path)
    limiter = find_limiter(ROOT, system=system, own="")
    blocked = system / "cpu" / cgroups.base_name(ROOT) / "w1-0-0" / "cpu.cfs_period_us"
    blocked.mkdir(parents=True)
    with pytest.raises(EngineError, match=r"cpu\.cfs_period_us"):
        limiter.make(task(100, 500, 64), 0)


def test_close_removes_empty_groups_only(tmp_path: Path) -> None:
    system = version_1(tmp_path)
    limiter = find_limiter(ROOT, system=system, own="")
    limiter.make(task(), 0)
    limiter.close()
    assert (system / "cpu" / cgroups.base_name(ROOT)).exists()
    for folder in limiter.find("w1-0-0").folders:
        Path(folder).rmdir()
    limiter.close()
    assert list((system / "cpu").iterdir()) == []
