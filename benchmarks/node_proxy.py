"""Node's ``configurable-http-proxy``, which shares its name with the Python port's script.

The port's script lies in the virtual environment that we run in, often first on the ``PATH``. Each
file of the name is looked at, and only one that says that Node runs it is taken.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NAME: Final = "configurable-http-proxy"


def find_node_proxy() -> list[str] | None:
    """Node and the script, both by their full paths; ``None`` where either is missing."""
    path = os.environ.get("PATH", os.defpath)
    node = shutil.which("node", path=path) or shutil.which("nodejs", path=path)
    script = next((one for one in _named(path) if _runs_on_node(one)), None)
    return None if node is None or script is None else [node, str(script)]


def _named(path: str) -> Iterator[Path]:
    for folder in path.split(os.pathsep):
        script = Path(folder or ".").absolute() / NAME
        if script.is_file() and os.access(script, os.X_OK):
            yield script


def _runs_on_node(script: Path) -> bool:
    """Whether the first line names Node as the interpreter, directly or through ``env``."""
    with script.open("rb") as file:
        first = file.readline(256).decode("utf-8", "replace")
    return first.startswith("#!") and "node" in first
