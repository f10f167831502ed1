"""The distribution of the package index that this package belongs to.

The distribution is called ``jupyter-carrel``; one called ``carrel`` belongs to another project and
provides a module of the same name, so the two cannot share an environment.
"""

import os
import sys
from collections.abc import Iterable
from typing import Final

NAME: Final = "jupyter-carrel"
OTHER: Final = "carrel"
REMEDY: Final = f"pip uninstall {OTHER}, then pip install --force-reinstall {NAME}"


def find_other(paths: Iterable[str] | None = None) -> str:
    """The folder in which a distribution called ``carrel`` is installed; empty if there is none.

    Folders are listed rather than asked through ``importlib.metadata``, which takes ten times as
    long to import as everything that a job needs of this package.

    Args:
        paths: where to look; by default where modules are imported from.
    """
    for path in sys.path if paths is None else paths:
        try:
            names = os.listdir(path or ".")  # noqa: PTH208 - pathlib is slow to load
        except OSError:
            continue  # not every entry of the search path exists
        for name in names:
            if name.startswith(f"{OTHER}-") and name.endswith((".dist-info", ".egg-info")):
                return path
    return ""
