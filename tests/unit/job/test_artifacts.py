"""``carrel.save`` keeps a file or a folder, whole or not at all."""

from pathlib import Path

import pytest

import carrel


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CARREL_ARTIFACTS", str(tmp_path / "kept"))
    return tmp_path / "kept"


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_file_is_kept_under_its_name_or_another(kept: Path) -> None:
    Path("model.pt").write_text("weights")
    assert carrel.save("model.pt") == kept / "model.pt"
    carrel.save("model.pt", "best/model.pt")
    Path("model.pt").write_text("better")
    carrel.save("model.pt")
    assert names(kept) == ["best", "best/model.pt", "model.pt"]
    assert (kept / "model.pt").read_text() == "better"


def test_a_folder_takes_the_place_of_the_earlier_one(kept: Path) -> None:
    Path("out").mkdir()
    Path("out/a").write_text("a")
    carrel.save("out")
    Path("out/a").rename("out/b")
    carrel.save("out")
    assert names(kept) == ["out", "out/b"]


def test_what_cannot_be_kept_is_said(kept: Path) -> None:
    with pytest.raises(FileNotFoundError):
        carrel.save("nothing")
    for name in ("../x", "/x"):
        with pytest.raises(ValueError, match="relative path"):
            carrel.save("nothing", name)
    assert names(kept) == []
