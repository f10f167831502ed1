"""What outlasts an attempt: the notebook as it was read, and where a next one goes on.

One file, written whole: the notebook with the outputs so far, and the cell to go on from.
"""

import os
from pathlib import Path
from typing import Final

from carrel.job.notebook import source
from carrel.job.notebook.source import Notebook
from carrel.job.task import warn

FILE: Final = "restart.ipynb"
BEGIN: Final = "carrel_begin"


def keep(folder: Path, notebook: Notebook, begin: int) -> None:
    """A next attempt goes on from the cell with index ``begin``. Raises ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    notebook.metadata[BEGIN] = begin
    text = source.text(notebook)
    del notebook.metadata[BEGIN]
    fresh = folder / f"{FILE}.new"
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / FILE)


def kept(folder: Path) -> tuple[Notebook, int] | None:
    """The notebook and where to go on; ``None`` when no attempt came so far."""
    path = folder / FILE
    try:
        notebook = source.load(path)
        begin = int(notebook.metadata.pop(BEGIN))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, AttributeError) as error:
        warn(f"{path} cannot be read ({error}); the notebook is read anew.")
        return None
    if not 0 <= begin <= len(notebook.cells):
        warn(f"{path} is not as it was written; the notebook is read anew.")
        return None
    return notebook, begin
