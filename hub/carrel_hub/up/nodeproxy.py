"""Finding Node's ``configurable-http-proxy``, which shares its name with the Python port's script.

The port's script lies in the virtual environment that we run in, often first on the ``PATH``. Each
file of the name is looked at, and only one that says that Node runs it is taken.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from carrel_hub.up.trouble import Trouble

NAME: Final = "configurable-http-proxy"
_NODE: Final = frozenset({"node", "nodejs"})
_PATIENCE_SECONDS: Final = 20
_INSTEAD: Final = "leave --proxy away to use the Python one."


def find_node_proxy(path: str | None = None) -> list[str]:
    """Node and the script, both by their full paths. Raises ``Trouble`` saying what is missing.

    Args:
        path: where to look, like ``PATH``; by default that.
    """
    where = os.environ.get("PATH", os.defpath) if path is None else path
    node = shutil.which("node", path=where) or shutil.which("nodejs", path=where)
    if node is None:
        raise Trouble(f"--proxy node needs Node.js, which is not on the PATH; {_INSTEAD}")
    found = list(_named(where))
    script = next((one for one in found if _runs_on_node(one)), None)
    if script is None:
        others = f" ({', '.join(map(str, found))} is not Node's)" if found else ""
        raise Trouble(
            f"Node's {NAME} is not on the PATH{others}: run npm install -g {NAME}, or {_INSTEAD}"
        )
    command = [node, str(script)]
    _check_it_runs(command)
    return command


def _named(path: str) -> Iterator[Path]:
    for folder in path.split(os.pathsep):
        script = Path(folder or ".").absolute() / NAME
        if script.is_file() and os.access(script, os.X_OK):
            yield script


def _runs_on_node(script: Path) -> bool:
    """Whether the first line names Node as the interpreter, directly or through ``env``."""
    try:
        with script.open("rb") as file:
            first = file.readline(256).decode("utf-8", "replace")
    except OSError:
        return False  # not ours to read, so not ours to run
    return first.startswith("#!") and any(Path(word).name in _NODE for word in first[2:].split())


def _check_it_runs(command: list[str]) -> None:
    """An old Node, or half an installation, is told now and not by a proxy that never answers."""
    try:
        told = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Trouble(f"{command[1]} cannot be run ({error}); {_INSTEAD}") from error
    if told.returncode != 0:
        lines = [line for line in told.stderr.splitlines() if line.strip()]
        why = next((line for line in lines if "Error" in line), lines[-1] if lines else "")
        reason = f"exit code {told.returncode}" + (f": {why.strip()}" if why else "")
        raise Trouble(f"{command[1]} does not run ({reason}); {_INSTEAD}")
