"""``carrel.save``: keep a file or folder of a job beyond its end.

    carrel.save("model.pt")
    carrel.save("out", "results")      # a folder, under another name

What lies in ``CARREL_ARTIFACTS`` is kept; this copies a file there whole or not at all. Outside a
job that is ``./artifacts``.
"""

import os
import shutil
import tempfile
from pathlib import Path


def save(source: str | Path, name: str | None = None) -> Path:
    """Keep a copy of a file or folder; an earlier one of the same name is replaced.

    Args:
        source: the file or folder.
        name: relative path under which it is kept; by default the last part of ``source``.

    Returns:
        Where the copy is.

    Raises:
        ValueError: for a name that leads out of the folder.
        OSError: when it is not there or the disk does not take it.
    """
    folder = Path(os.environ.get("CARREL_ARTIFACTS") or "artifacts")
    path = Path(source)
    asked = Path(name or path.resolve().name)
    if asked.is_absolute() or ".." in asked.parts or not asked.parts:
        raise ValueError(f"name is {name!r}, but a relative path without '..' is right")
    target = folder / asked
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=folder)) / asked.name
    try:
        if path.is_dir():
            shutil.copytree(path, fresh)
            shutil.rmtree(target, ignore_errors=True)
        else:
            shutil.copy2(path, fresh)
        fresh.replace(target)
    finally:
        shutil.rmtree(fresh.parent, ignore_errors=True)
    return target
