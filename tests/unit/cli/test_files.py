"""``carrel cp``, ``artifacts`` and their way to this machine."""

import io
import tarfile
from pathlib import Path

import pytest

from carrel.client.resources import files
from carrel.errors import BadSetting
from carrel.testing.fake import FakeScheduler
from carrel_schema.files import StoredFile
from unit.cli.conftest import Run


@pytest.fixture
def ended(fake: FakeScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake.submit("vision", "train-7")
    fake.run("vision", "train-7")
    fake.finish("vision", "train-7")
    fake.keep("vision", "train-7", {"out/a.csv": b"a", "out/deep/b.csv": b"bb", "log": b"c" * 3000})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_artifacts_are_listed_and_downloaded(run: Run, ended: Path) -> None:
    done = run("artifacts", "train-7", "-p", "vision", "--download", "--to", "here")
    assert [line.split()[:3] for line in done.out.splitlines()] == [
        ["PATH", "SIZE", "CHANGED"],
        ["log", "2.9", "KiB"],
        ["out/a.csv", "1", "B"],
        ["out/deep/b.csv", "2", "B"],
    ]
    assert (ended / "here" / "out" / "deep" / "b.csv").read_bytes() == b"bb"


def test_a_folder_or_a_file_is_copied_as_cp_does(run: Run, ended: Path) -> None:
    assert run("cp", "train-7:out", "new", "-p", "vision").code == 0
    assert run("cp", "train-7:out", ".", "-p", "vision").code == 0
    assert run("cp", "train-7:out/a.csv", "renamed", "-p", "vision").code == 0
    assert (ended / "new" / "deep" / "b.csv").read_bytes() == b"bb"
    assert (ended / "out" / "a.csv").read_bytes() == b"a"
    assert (ended / "renamed").read_bytes() == b"a"
    missing = run("cp", "train-7:nothing", ".", "-p", "vision")
    assert (missing.code, "such as `log`" in missing.err) == (1, True)
    assert run("cp", "a", "b").code == 2
    assert run("cp", "train-7:a", "train-8:b").code == 2


@pytest.mark.parametrize("path", ["../outside", "/etc/outside"])
def test_a_server_names_no_place_elsewhere(path: str, tmp_path: Path) -> None:
    file = StoredFile(path=path, size=1, modified_at=0.0)
    with pytest.raises(BadSetting, match="lies elsewhere"):
        list(files._places([file], "", tmp_path))


def test_an_archive_brings_no_link_that_leads_out(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as out:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(entry)
    archive.seek(0)
    with pytest.raises(tarfile.TarError):
        files._unpack(archive, tmp_path / "here")
    assert list(tmp_path.iterdir()) == []
