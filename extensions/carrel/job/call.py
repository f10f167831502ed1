"""``python -m carrel.job.call FOLDER``: one call of ``carrel.map``, in a job of its own.

The function and its argument lie beside it, packed by whoever called ``map``; what the function
returns or raises goes back there.
"""

import base64
import os
import pickle
import sys
import zlib
from pathlib import Path
from typing import Any

from carrel.job import result
from carrel.job.notebook.starter import hide_frames

FUNCTION, ITEM = "function.b85", "item.b85"


def call(folder: str) -> None:
    """Unpack, call, hand back the result. Exceptions are raised again, so that the job fails."""
    here = Path.cwd()
    try:
        if folder:
            _enter(folder)
        function, item = _unpacked(here / FUNCTION), _unpacked(here / ITEM)
        value = function(item)
    except Exception as error:
        result.hand_back(error=error)
        raise
    result.hand_back(value)


def _enter(folder: str) -> None:
    """Work where the caller works, if that is seen here, and find its modules."""
    if Path(folder).is_dir():
        os.chdir(folder)
        sys.path.insert(0, folder)


def _unpacked(file: Path) -> Any:
    return pickle.loads(zlib.decompress(base64.b85decode(file.read_bytes())))  # noqa: S301 - the caller's own


if __name__ == "__main__":
    hide_frames(call.__code__.co_filename, "<frozen runpy>")
    call(sys.argv[1] if len(sys.argv) > 1 else "")
