"""Starts a cell that was sent away: its variables, its folder, then its code as ``__main__``.

Runs beside ``cell.py`` and ``inputs.b85``. Needs Python alone, nothing installed.
"""

import base64
import os
import pickle
import sys
import zlib
from pathlib import Path


def start() -> None:
    """Run ``cell.py`` in the folder named by the first argument."""
    here = Path(__file__).resolve().parent
    cell, packed = here / "cell.py", here / "inputs.b85"
    enter(sys.argv[1])
    values = {}
    if packed.exists():
        values = pickle.loads(zlib.decompress(base64.b85decode(packed.read_bytes())))  # noqa: S301 - our own
    code = compile(cell.read_text(encoding="utf-8"), str(cell), "exec", dont_inherit=True)
    sys.argv = [str(cell)]
    main = sys.modules["__main__"].__dict__
    for name in ("base64", "os", "pickle", "sys", "zlib", "Path", "enter", "start"):
        del main[name]
    main.update(values, __file__=str(cell), __doc__=None)
    exec(code, main)  # noqa: S102 - running the cell is what this is for


def enter(folder: str) -> None:
    """Work where the notebook works; its modules are found there, not beside this file."""
    try:
        os.chdir(folder)
    except OSError as error:
        sys.exit(f"The notebook's folder {folder} cannot be entered here: {error.strerror}.")
    sys.path[0] = folder


if __name__ == "__main__":
    start()
