"""The files of the limiter in the volume of a pod, as its init container leaves them."""

import stat
from pathlib import Path

import pytest

from carrel_scheduler.node.limiter import install as installing
from carrel_scheduler.node.limiter.folder import USAGE_BYTES
from carrel_scheduler.node.limiter.library import NoLibrary
from carrel_schema.shared_gpus import FOLDER, LIBRARY, MOUNTS

TOLD = {"CARREL_GPU_UUIDS": "GPU-a,GPU-b", "CARREL_GPU_MEMORY_MIB": "512"}


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "library"
    made.write_bytes(b"ELF")
    monkeypatch.setattr(installing, "find_library", lambda: made)


def test_every_file_that_is_mounted_is_there_and_fixed(tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    for _ in range(2):  # the container may be restarted
        assert installing.install(folder, TOLD) == ""
    assert (folder / "limits").read_text() == "GPU-a 536870912\nGPU-b 536870912\n"
    assert (folder / "preload").read_text() == f"{FOLDER}/{LIBRARY}\n"
    assert (folder / LIBRARY).read_bytes() == b"ELF"
    assert (folder / "usage").stat().st_size == USAGE_BYTES
    for name, _, fixed in MOUNTS:
        writable = (folder / name).stat().st_mode & stat.S_IWOTH
        assert bool(writable) is not fixed


@pytest.mark.parametrize(
    "told", [{}, {**TOLD, "CARREL_GPU_MEMORY_MIB": ""}, {**TOLD, "CARREL_GPU_MEMORY_MIB": "0"}]
)
def test_what_is_not_known_is_not_limited(tmp_path: Path, told: dict[str, str]) -> None:
    assert "how much memory" in installing.install(tmp_path, told)
    assert (tmp_path / "limits").read_text() == (tmp_path / "preload").read_text() == ""


def test_an_image_without_the_library_limits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Path:
        raise NoLibrary("no C compiler")

    monkeypatch.setattr(installing, "find_library", none)
    assert installing.install(tmp_path, TOLD) == "no C compiler"
    assert all((tmp_path / name).exists() for name, _, _ in MOUNTS)
    assert (tmp_path / "preload").read_text() == ""
