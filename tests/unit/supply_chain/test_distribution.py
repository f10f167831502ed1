"""The name under which Carrel is installed, and what happens beside another project's."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from carrel import distribution
from carrel_hub.up import checks
from carrel_hub.up.checks import StartupError

REPOSITORY = Path(__file__).parents[3]
INSTALLS_THE_OTHER = re.compile(
    r"pip install[^\n]*[\s'\"]carrel(\[|['\"\s]|$)|\bcarrel\[[a-z,]+\]|dist/carrel-", re.MULTILINE
)


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True
    ).stdout
    return [REPOSITORY / name for name in listed.decode().split("\0") if name]


def test_nothing_in_the_tree_installs_the_other_project() -> None:
    """A line that says so installs a stranger's code."""
    found = []
    for path in _tracked():
        if path == Path(__file__) or not path.is_file():
            continue
        text = path.read_bytes().decode(errors="ignore").replace("jupyter-carrel", "")
        found += [
            f"{path.relative_to(REPOSITORY)}: {one[0]}" for one in INSTALLS_THE_OTHER.finditer(text)
        ]
    assert not found


@pytest.mark.parametrize(
    "line",
    ["pip install carrel", "pip install 'carrel[hub,demo]'", "carrel[jobs]", "dist/carrel-*.whl"],
)
def test_such_a_line_would_be_found(line: str) -> None:
    assert INSTALLS_THE_OTHER.search(line)


def test_the_project_is_called_as_its_messages_say() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["name"] == distribution.NAME


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder with the other project's distribution in it."""
    (tmp_path / "carrel-0.5.0.dist-info").mkdir()
    return tmp_path


def test_importing_beside_the_other_project_says_so(other: Path) -> None:
    extensions = REPOSITORY / "extensions"
    program = f"import sys; sys.path[:0] = [{str(extensions)!r}, {str(other)!r}]; import carrel"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=other
    )
    assert "is another project" in done.stderr
    assert "pip install --force-reinstall jupyter-carrel" in done.stderr


def test_importing_alone_says_nothing(tmp_path: Path) -> None:
    assert distribution.find_other([str(tmp_path), str(tmp_path / "missing"), ""]) == ""


def test_nothing_starts_beside_the_other_project(other: Path) -> None:
    with pytest.raises(StartupError, match=r"carrel in .* is another project"):
        checks.check_distribution([str(other)])
    checks.check_distribution([])


def test_nothing_starts_with_the_module_of_the_other_project(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "carrel").mkdir()
    (tmp_path / "carrel" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [one for one in sys.modules if one.partition(".")[0] == "carrel"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(StartupError, match="is another project's"):
        checks.check_distribution([])
