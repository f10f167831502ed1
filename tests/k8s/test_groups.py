"""Control groups of version 2, decided on folders that pose as them; runs here may have version 1.

What the kernel makes of it is not seen here.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from k8s.cluster import controllers
from k8s.cluster.network import make_group
from k8s.cluster.records import Record
from k8s.cluster.tiers import why_no_groups

ALL = "cpuset cpu io memory hugetlb pids"


def unified(
    at: Path, has: str = ALL, hands_on: str = "", processes: str = "", kind: str = ""
) -> Path:
    """A folder that poses as a group of version 2; the machine's own has no ``kind``."""
    at.mkdir(exist_ok=True)
    (at / "cgroup.controllers").write_text(has)
    (at / "cgroup.subtree_control").write_text(hands_on)
    (at / "cgroup.procs").write_text(processes)
    if kind:
        (at / "cgroup.type").write_text(kind)
    return at


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    made = Record.begin(tmp_path / "runs")
    yield made
    if made.folder.exists():
        made.end()


def test_a_group_is_handed_on_what_its_parent_kept_back(tmp_path: Path, record: Record) -> None:
    root = unified(tmp_path / "cgroup", hands_on="cpu memory pids")
    make_group(root / "run", record)
    assert (root / "run").is_dir()
    handed = (root / "cgroup.subtree_control").read_text()
    assert handed == "+cpuset +hugetlb +io"
    lines = (record.folder / "leftovers").read_text().splitlines()
    controlled = [line.split() for line in lines if line.startswith("controller")]
    assert controlled == [["controller", name, str(root)] for name in ("cpuset", "hugetlb", "io")]
    assert f"group {root / 'run'} " in lines


def test_what_a_run_had_handed_on_is_taken_back(tmp_path: Path, record: Record) -> None:
    root = unified(tmp_path / "cgroup", hands_on="cpu memory pids io hugetlb")
    make_group(root / "run", record)
    record.end()
    assert not (root / "run").exists()
    assert (root / "cgroup.subtree_control").read_text() == "-cpuset"


def test_nothing_is_changed_where_all_is_handed_on(tmp_path: Path) -> None:
    root = unified(tmp_path, hands_on=ALL)
    controllers.hand_on(root)
    assert (root / "cgroup.subtree_control").read_text() == ALL


def test_a_group_of_version_1_is_only_made(tmp_path: Path, record: Record) -> None:
    (tmp_path / "memory").mkdir()
    make_group(tmp_path / "memory" / "run", record)
    assert not list((tmp_path / "memory").glob("*/*"))
    assert (record.folder / "leftovers").read_text().split()[0] == "group"


def test_both_versions_together_limit_what_version_1_does(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("cpu,cpuacct", "cpuset", "memory", "pids")]
    for folder in folders:
        folder.mkdir()
    both = [*folders, unified(tmp_path / "unified", has="")]
    assert not why_no_groups(both)
    assert why_no_groups(both[1:]) == "control groups here do not limit cpu"


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ({}, ""),
        ({"processes": "1 2"}, ""),  # the machine's own group may have both
        ({"has": "cpu memory pids"}, "control groups here do not limit cpuset"),
        ({"processes": "1", "kind": "domain"}, "has processes of its own"),
        ({"processes": "1", "kind": "domain", "hands_on": ALL}, ""),
    ],
)
def test_why_pods_cannot_be_limited(tmp_path: Path, group: dict[str, str], reason: str) -> None:
    told = why_no_groups([unified(tmp_path / "cgroup", **group)])
    assert reason in told
    assert bool(told) == bool(reason)
