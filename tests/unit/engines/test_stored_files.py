"""Files below a folder that others change: no link is followed, and copies are whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carrel_scheduler.engines.files import folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "artifacts"
    (root / "deep").mkdir(parents=True)
    (root / "a.txt").write_text("one")
    (root / "deep" / "b.txt").write_text("three")
    return root


def read(root: Path, path: str) -> bytes:
    return b"".join(folder.pieces(folder.open_file(str(root), path)))


def test_regular_files_are_listed_and_read(root: Path) -> None:
    found = folder.listing(str(root), 10)
    assert [(path, size) for path, size, _ in found] == [("a.txt", 3), ("deep/b.txt", 5)]
    assert read(root, "deep/b.txt") == b"three"
    with pytest.raises(OverflowError):
        folder.listing(str(root), 1)


def test_links_and_special_files_lead_nowhere(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path / "outside")
    os.mkfifo(root / "pipe")
    assert [path for path, _, _ in folder.listing(str(root), 10)] == ["a.txt", "deep/b.txt"]
    for path in ("link", "folder/x", "pipe", "deep", "../secret"):
        with pytest.raises(OSError):
            read(root, path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_of_another_account_are_not_the_works_own(root: Path) -> None:
    (root / "foreign").write_text("secret")
    os.chown(root / "foreign", 12345, 12345)
    assert "foreign" not in [path for path, _, _ in folder.listing(str(root), 10)]
    with pytest.raises(FileNotFoundError):
        read(root, "foreign")


def test_a_copy_keeps_the_last_name_and_cannot_be_made_twice(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    assert folder.copy(str(root), "deep/b.txt", str(target)) == 5
    assert (target / "b.txt").read_text() == "three"
    assert (target / "b.txt").stat().st_mode & 0o777 == 0o444
    with pytest.raises(FileExistsError):
        folder.copy(str(root), "", str(target))
    with pytest.raises(FileNotFoundError):
        folder.copy(str(root), "nothing", str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    assert folder.copy(str(root), "", str(tmp_path / "whole")) == 8
    assert (tmp_path / "whole" / "deep" / "b.txt").exists()


def test_its_text_is_a_program(root: Path, tmp_path: Path) -> None:
    text = Path(folder.__file__).read_text()

    def run(*words: str) -> tuple[int, bytes]:
        done = subprocess.run(
            [sys.executable, "-c", text, *words], capture_output=True, check=False
        )
        return done.returncode, done.stdout

    code, out = run("list", str(root), "10")
    assert (code, [one[0] for one in json.loads(out)]) == (0, ["a.txt", "deep/b.txt"])
    assert run("read", str(root), "a.txt") == (0, b"one")
    assert run("read", str(root), "nothing")[0] == folder.MISSING
    assert run("list", str(root), "1")[0] == folder.TOO_MANY
    assert run("copy", str(root), "deep", f"{tmp_path}/copies/c")[:1] == (0,)
    assert (tmp_path / "copies" / "c" / "deep" / "b.txt").exists()
    assert run("names", str(tmp_path / "none")) == (0, b"[]")
    assert run("size", str(root)) == (0, b"8")
    assert run("remove", str(root))[0] == 0
    assert not root.exists()
