"""Runs inside the workspace's task, as its user: prepares the home, then becomes the server.

``python -m carrel_spawner.launch [--demo] [--set-up] [-- server arguments]``. Trouble with what
nobody asked for (no room for the demo notebooks) is told, not fatal; an environment or a folder
that was asked for and cannot be had ends the start with a sentence that the spawner reads out of
the log (``options.logged_error``).

With ``--set-up`` the server is told of this installation's extension; the Hub can tell it only
where both are the same installation.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from carrel import workspace as workspace_side
from carrel_spawner import options, python_environment
from carrel_spawner.options import ENVIRONMENT, FOLDERS, BadOption

PRIVATE_UMASK: Final = 0o077
CONFIGURATION_ERROR: Final = 78


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare and exec; does not return.

    The kernels' sockets lie in a folder of this server's own: a home's path may be too long for a
    socket (107 characters), and its file system may not hold any.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, server = _split(given)
    os.umask(PRIVATE_UMASK)
    home = Path.home()
    os.chdir(home)
    if "--demo" in own:
        for complaint in copy_demo(home):
            print(complaint, file=sys.stderr)  # noqa: T201 - this is the workspace's log
    try:
        link_folders(home, os.environ.get(FOLDERS, ""))
        use_environment(home, os.environ.get(ENVIRONMENT, ""))
    except BadOption as error:
        print(options.log_line(error), file=sys.stderr, flush=True)  # noqa: T201 - the same
        sys.exit(CONFIGURATION_ERROR)
    if "--set-up" in own:
        os.environ.update(workspace_side.environment())
        server = [*workspace_side.server_arguments(), *server]
    os.environ["JUPYTER_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="jupyter-")
    command = [sys.executable, "-m", "carrel.workspace.server", *terminals(os.environ), *server]
    os.execv(sys.executable, command)  # noqa: S606 - there is no shell to start


def terminals(environment: Mapping[str, str]) -> list[str]:
    """Have terminals begin with a plain shell: one for a login forgets our ``PATH``."""
    shell = environment.get("SHELL") or shutil.which("bash") or "/bin/sh"
    return [f"--ServerApp.terminado_settings={{'shell_command': [{shell!r}]}}"]


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


def link_folders(home: Path, folders: str) -> None:
    """Have folders, JSON of ``[source, name]``, seen in the home. Raises ``BadOption``.

    A link of an earlier start is replaced; what else has the name is the user's, and stays.
    """
    for source, name in json.loads(folders or "[]"):
        link, shown = home / name, f"{source}:{name}"
        try:
            with os.scandir(source) as entries:
                next(entries, None)
            link.parent.mkdir(parents=True, exist_ok=True)
            if link.is_symlink():
                link.unlink()
            link.symlink_to(source)
        except FileExistsError as error:
            right = f"seen under another name: there is a {name} in your home already"
            raise BadOption("volumes", shown, right) from error
        except OSError as error:
            right = f"a folder that you may read ({error.strerror})"
            raise BadOption("volumes", shown, right) from error


def use_environment(home: Path, prefix: str) -> None:
    """Run notebooks and terminals in this environment. Raises ``BadOption``."""
    if not prefix:
        return
    found = python_environment.find(prefix, home)
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "carrel"
    server = os.environ.get("JUPYTERHUB_SERVER_NAME", "")
    kernels = python_environment.write_kernels(found, data, server)
    before = os.environ.get("JUPYTER_PATH", "")
    os.environ["JUPYTER_PATH"] = f"{kernels}:{before}" if before else str(kernels)
    os.environ.update(found.variables(os.environ))


def _split(given: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into own options and, after ``--``, the server's."""
    if "--" not in given:
        return given, []
    position = given.index("--")
    return given[:position], given[position + 1 :]


if __name__ == "__main__":
    main()
