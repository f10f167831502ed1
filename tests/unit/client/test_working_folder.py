"""Which files of a folder go along with a job."""

import os
from pathlib import Path

import pytest

from carrel.client import working_folder
from carrel.client.working_folder import names_files, pack
from carrel.errors import BadSetting
from carrel_schema.code import CHUNK_BYTES


def make(root: Path, *files: str, **contents: str) -> None:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents.get(name, name))


def names(root: Path) -> list[str]:
    return [file.path for file in pack(root).listed.files]


def test_files_go_along_but_what_ignore_files_name(tmp_path: Path) -> None:
    make(tmp_path, "train.py", "data/big.bin", "data/keep.txt", "logs/a", "lib/build/x", "lib/y")
    make(tmp_path, ".git/config", "__pycache__/x.pyc", ".venv/bin/python", "lib/logs/b")
    (tmp_path / ".gitignore").write_text("/logs\n*.bin\ndata/\n")
    (tmp_path / ".carrelignore").write_text("!data/\ndata/*\n!data/keep.txt\n")
    (tmp_path / "lib/.gitignore").write_text("build\n")
    assert names(tmp_path) == [
        ".carrelignore", ".gitignore", "train.py",
        "data/keep.txt", "lib/.gitignore", "lib/y", "lib/logs/b",
    ]  # fmt: skip


def test_links_go_along_as_files_unless_they_lead_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(tmp_path, "outside/secret", "root/a", "root/folder/b")
    (root / "inside").symlink_to("a")
    (root / "out").symlink_to("../outside/secret")
    (root / "folder-out").symlink_to("../outside")
    (root / "folder-in").symlink_to("folder")
    (root / "broken").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    packed = pack(root)
    assert [file.path for file in packed.listed.files] == ["a", "inside", "folder/b"]
    assert sorted(packed.left_out) == ["broken", "folder-in", "folder-out", "out"]
    assert "links out of it stay here" in packed.told


def test_large_files_are_chunks_and_programs_stay_programs(tmp_path: Path) -> None:
    content = os.urandom(2 * CHUNK_BYTES + 5)
    (tmp_path / "model").write_bytes(content)
    (tmp_path / "run.sh").write_text("true")
    (tmp_path / "run.sh").chmod(0o755)
    packed = pack(tmp_path)
    model, run = packed.listed.files
    assert b"".join(map(packed.read_chunk, model.chunks)) == content
    assert (model.executable, run.executable, run.size) == (False, True, 4)
    (tmp_path / "model").write_bytes(b"changed")
    with pytest.raises(BadSetting, match="model was changed while it was sent"):
        packed.read_chunk(model.chunks[1])


def test_too_much_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a", "b")
    monkeypatch.setattr(working_folder, "MOST_FILES", 1)
    with pytest.raises(BadSetting, match=r"more than 1 files: .*carrelignore.*--no-code"):
        pack(tmp_path)
    monkeypatch.setattr(working_folder, "MOST_FOLDER_BYTES", 0)
    with pytest.raises(BadSetting, match="more than 0 MiB"):
        pack(tmp_path)
    with pytest.raises(BadSetting, match="There is no folder"):
        pack(tmp_path / "gone")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["python", "train.py", "--lr", "1"], True),
        (["./run.sh"], True),
        (["bash", "-c", "cd src && python tool.py; true"], True),
        (["python", "-m", "pkg.main"], True),
        (["python", "-m", "train"], True),
        (["python", "-m", "http.server"], False),
        (["nvidia-smi"], False),
        (["cat", "/etc/passwd"], False),
        (["ls", "../outside"], False),
        (["bash", "-c", "echo 'open"], False),
        (["python", "x" * 5000], False),
    ],
)
def test_whether_a_command_names_files_here(
    tmp_path: Path, command: list[str], named: bool
) -> None:
    make(tmp_path, "root/train.py", "root/run.sh", "root/src/tool.py", "root/pkg/main.py")
    make(tmp_path, "outside")
    assert names_files(command, tmp_path / "root") is named
