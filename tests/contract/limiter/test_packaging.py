"""The limiter is compiled into wheels, and anew where its sources are others."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from carrel_scheduler.node.limiter import library

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_wheel_brings_the_compiled_library(tmp_path: Path) -> None:
    build = "import hatchling.build as b, sys; print(b.build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl") or "any" not in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.read("carrel_scheduler/node/limiter/libcarrel_gpu_limit.so")
        names = archive.namelist()
    assert inside[:4] == b"\x7fELF"
    assert library.sources_digest().encode() in inside
    assert "carrel_scheduler/node/limiter/source/usage.c" in names


def test_a_library_of_other_sources_is_compiled_anew(tmp_path: Path) -> None:
    old = tmp_path / "lib.so"
    old.write_bytes(b"of other sources")
    assert library.find_library(old) == old
    first = old.stat().st_mtime_ns
    assert old.read_bytes()[:4] == b"\x7fELF"
    assert library.find_library(old).stat().st_mtime_ns == first


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "compiler_command", list)
    with pytest.raises(library.NoLibrary, match="install gcc"):
        library.find_library(tmp_path / "lib.so")
    with pytest.raises(library.NoLibrary, match="could not compile"):
        library.compile_library(tmp_path / "lib.so", ["false"])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(library.NoLibrary, match="cannot be written"):
        library.compile_library(tmp_path / "no" / "lib.so", ["true"])
