"""Open MPI beside MPICH: each brings an ``mpirun`` and a ``libmpi.so``, so it has its own folder.

``python -m e2e.open_mpi`` makes the folder before tests need it; else the first of them does.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

RELEASE: Final = "5.0.11"
_PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")


def folder() -> Path:
    """The folder of Open MPI in the environment of the tests; it is installed there if missing."""
    place = Path(sys.prefix) / "opt" / f"openmpi-{RELEASE}"
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as made:
            _install(Path(made) / "prefix")
            # Whoever is first puts it there, whole.
            if not place.exists():
                shutil.move(Path(made) / "prefix", place)
    return place


def _install(prefix: Path) -> None:
    asked = ("--ignore-installed", "--prefix", str(prefix), f"openmpi=={RELEASE}")
    subprocess.run([sys.executable, *_PIP, *asked], check=True, timeout=240)


def variables() -> dict[str, str]:
    """The environment of a job that uses it: its ``mpirun`` first, and its library for mpi4py."""
    place = folder()
    return {
        "PATH": f"{place}/bin:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "MPI4PY_LIBMPI": f"{place}/lib/libmpi.so.40",
    }


if __name__ == "__main__":
    print(f"Open MPI for tests: {folder()}")
