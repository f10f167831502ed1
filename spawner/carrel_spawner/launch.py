"""Runs inside the workspace's task, as its user: prepares the home, then becomes the server.

``python -m carrel_spawner.launch [--demo] [-- server arguments]``. Nothing here is needed for a
workspace to work, so trouble with the home (a full disk, a read-only file) is told, not fatal.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

PRIVATE_UMASK = 0o077


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare and exec; does not return."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, server = _split(given)
    os.umask(PRIVATE_UMASK)
    home = Path.home()
    os.chdir(home)
    if "--demo" in own:
        for complaint in copy_demo(home):
            print(complaint, file=sys.stderr)  # noqa: T201 - this is the workspace's log
    command = [sys.executable, "-m", "jupyterhub.singleuser", *server]
    os.execv(sys.executable, command)  # noqa: S606 - there is no shell to start


def copy_demo(home: Path) -> list[str]:
    """Put the demo notebooks into the home unless they are there; returns what went wrong."""
    complaints = []
    for source in sorted(Path(str(files("carrel") / "notebook" / "demo")).glob("*.ipynb")):
        target = home / source.name
        try:
            if not target.exists():
                shutil.copyfile(source, target)
        except OSError as error:
            complaints.append(f"The demo notebook could not be copied to {target}: {error}")
    return complaints


def _split(given: list[str]) -> tuple[list[str], list[str]]:
    """Our options and, after ``--``, the server's."""
    if "--" not in given:
        return given, []
    position = given.index("--")
    return given[:position], given[position + 1 :]


if __name__ == "__main__":
    main()
