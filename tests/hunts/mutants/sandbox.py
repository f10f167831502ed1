"""A copy of what the tests of the core need; nothing is ever changed in the tree itself.

The copy is of the tree as it lies there or of a commit. Compiled files are checked by their
content, since a module and its mutant may have the same size and second.
"""

import compileall
import io
import py_compile
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
CORE = "scheduler/carrel_scheduler/core"
SCENARIOS = REPOSITORY.parent / "shared" / "conformance" / "scenarios.json"
"""Beside the checkout; the tests of a copy look for them there too."""
TESTS = (
    "tests/unit/core",
    "tests/conformance",
    "tests/unit/benchmarks/test_packing.py",
    "tests/unit/benchmarks/test_simulation.py",
)
TOO_SLOW = ("tests/unit/core/test_machine.py",)
"""Would take longer than all others together; without them the figure can only be lower."""
COPIED = ("scheduler", "extensions", "tests", "benchmarks", "docs")
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".hypothesis", ".*_cache", "node_modules")

CONFIGURATION = """\
[pytest]
addopts = --import-mode=importlib
pythonpath = scheduler extensions tests .
filterwarnings = error
markers = slow: takes more than a few seconds
"""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A folder laid out like the repository."""

    root: Path

    @property
    def core(self) -> Path:
        """The package that is mutated."""
        return self.root / CORE

    def tests(self) -> list[str]:
        """The files of all tests, in order."""
        found = {path for one in TESTS for path in self._below(self.root / one)}
        names = {path.relative_to(self.root).as_posix() for path in found}
        return sorted(names - set(TOO_SLOW))

    @staticmethod
    def _below(path: Path) -> list[Path]:
        return [path] if path.is_file() else list(path.rglob("test_*.py"))

    def enter(self) -> None:
        """Let this process import from here; the repository is no longer on its path."""
        mine = [str(self.root / one) for one in ("scheduler", "extensions", "tests", "")]
        away = str(REPOSITORY)
        kept = [one for one in sys.path if not one.startswith(away) or "site-packages" in one]
        sys.path[:] = [*mine, *kept]


def make(root: Path, revision: str | None) -> Sandbox:
    """Copy the tree, or a commit of it, and compile it."""
    root.mkdir(parents=True)
    if revision is None:
        for folder in COPIED:
            shutil.copytree(REPOSITORY / folder, root / folder, ignore=LEFT_OUT)
    else:
        packed = subprocess.run(
            ["git", "-C", str(REPOSITORY), "archive", revision, *COPIED],
            check=True,
            stdout=subprocess.PIPE,
        )
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(root, filter="data")
    (root / "pytest.ini").write_text(CONFIGURATION, encoding="utf-8")
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(root / "scheduler", quiet=2, invalidation_mode=mode)
    return Sandbox(root)


def clone(sandbox: Sandbox, root: Path) -> Sandbox:
    """A copy of the sandbox, for another process."""
    shutil.copytree(sandbox.root, root)
    return Sandbox(root)
