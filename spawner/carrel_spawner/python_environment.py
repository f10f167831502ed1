"""The Python environment that a workspace's notebooks run in; JupyterLab itself stays Carrel's.

Runs inside the workspace as its user, so what is found here is what the notebooks will find. The
environment's kernel takes the name of the usual one, ``python3``: every notebook that asks for
Python gets it. Carrel's own Python stays beside it, under a name of its own.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from carrel_spawner.options import BadOption

FIELD: Final = "environment"
PROBE_SECONDS: Final = 60
OWN_KERNEL: Final = "carrel"
_PROBE: Final = (
    "import importlib.util as u, json, platform\n"
    "print(json.dumps([platform.python_version(), u.find_spec('ipykernel') is not None]))"
)


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """A usable Python environment. ``version`` is its Python's, such as ``3.12.1``."""

    prefix: Path
    version: str

    @property
    def python(self) -> Path:
        """The path of the interpreter."""
        return self.prefix / "bin" / "python"

    @property
    def title(self) -> str:
        """The display name of the kernel."""
        return f"Python {self.version.rpartition('.')[0]} ({self.prefix.name})"

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables of the workspace's programs: its commands first, as after activation."""
        conda = (self.prefix / "conda-meta").is_dir()
        path = environment.get("PATH", os.defpath)
        return {
            "PATH": f"{self.prefix / 'bin'}:{path}",
            "CONDA_PREFIX" if conda else "VIRTUAL_ENV": str(self.prefix),
        }


def find(value: str, home: Path) -> PythonEnvironment:
    """The environment at a prefix. Raises ``BadOption`` saying why it cannot be used."""
    prefix = Path(f"{home}{value[1:]}" if value.startswith("~/") else value)
    python = prefix / "bin" / "python"
    try:
        found = python.is_file()
    except OSError as error:
        raise BadOption(FIELD, value, f"one that you may read ({error.strerror})") from error
    if not found:
        raise BadOption(FIELD, value, _missing(prefix, python))
    if not os.access(python, os.X_OK):
        raise BadOption(FIELD, value, f"one whose {python} you may run")
    version, has_kernel = _asked(value, python)
    if not has_kernel:
        right = f"one with ipykernel: run {python} -m pip install ipykernel"
        raise BadOption(FIELD, value, right)
    return PythonEnvironment(prefix, version)


def write_kernels(environment: PythonEnvironment, data: Path, workspace: str) -> Path:
    """Write the kernels of a workspace; returns the folder that Jupyter is to look in first.

    ``data`` is the user's folder for our files; each workspace has a part of its own there.
    """
    folder = data / "kernels-of" / (quote(workspace, safe="") or "_default")
    _write(folder, "python3", environment.python, environment.title)
    _write(folder, OWN_KERNEL, Path(sys.executable), "Python 3 (Carrel)")
    return folder


def _write(folder: Path, name: str, python: Path, title: str) -> None:
    from ipykernel.kernelspec import RESOURCES  # in a workspace; a cluster's Hub has no kernels

    spec = {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": title,
        "language": "python",
        "metadata": {"debugger": True},
    }
    target = folder / "kernels" / name
    shutil.copytree(RESOURCES, target, dirs_exist_ok=True)
    (target / "kernel.json").write_text(json.dumps(spec, indent=1))


def _missing(prefix: Path, python: Path) -> str:
    """The reason why there is no interpreter at this place, as far as it can be seen from here."""
    for folder in reversed(prefix.parents):
        if folder.is_dir() and not os.access(folder, os.X_OK):
            return f"one that you may read, which {folder} does not let you"
    if not prefix.is_dir():
        return "a folder that is there, of a virtual or conda environment"
    if python.is_symlink():
        return f"one whose Python you may read: {python} leads to {python.readlink()}"
    return "a virtual or conda environment: it has no bin/python"


def _asked(value: str, python: Path) -> tuple[str, bool]:
    try:
        answer = subprocess.run(
            [str(python), "-I", "-c", _PROBE],
            capture_output=True, text=True, timeout=PROBE_SECONDS, check=True,
        )  # fmt: skip
        version, has_kernel = json.loads(answer.stdout.strip().rpartition("\n")[2])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise BadOption(FIELD, value, f"one whose Python runs ({error})") from error
    return str(version), bool(has_kernel)
