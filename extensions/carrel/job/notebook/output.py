"""Files of a run: the executed notebook, and the restart point for the next attempt.

The executed notebook is complete at any time and replaces no file that is not this job's. The
restart point is one file: the notebook with its outputs so far and the cell to go on from.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Final

from carrel.job.notebook import source
from carrel.job.notebook.reporting import NotebookProblem
from carrel.job.notebook.source import Notebook, find, sent_along, text
from carrel.job.notebook.spec import RunSpec
from carrel.job.task import warn

MOST_NUMBERS: Final = 1000


class ExecutedNotebook:
    """The executed notebook's file. Raises ``NotebookProblem`` when it cannot be written."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self.path = _path(spec)
        source = find(spec)
        if source.exists() and self.path.exists() and source.samefile(self.path):
            raise NotebookProblem(
                "output_is_input",
                f"The output {self.path} is the notebook itself; name another file.",
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            probe = self._beside()
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise self._refused(error) from error

    @property
    def handed_back(self) -> bool:
        """Whether only this container sees the file, so that the scheduler gets it."""
        return self._spec.alone and self.path.is_relative_to(self._spec.kept.parent)

    def save(self, notebook: Notebook) -> None:
        """Replace the file atomically."""
        fresh = self._beside()
        try:
            fresh.write_text(text(notebook), encoding="utf-8")
            fresh.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise self._refused(error) from error

    def _beside(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{os.getpid()}")

    def _refused(self, error: OSError) -> NotebookProblem:
        return NotebookProblem(
            "output_not_writable",
            f"The executed notebook cannot be written to {self.path}: {error.strerror}.",
        )


def _path(spec: RunSpec) -> Path:
    """The file: as requested, else beside the notebook, or in the home for one sent along."""
    asked = spec.output.replace("{name}", spec.job).replace("{date}", spec.date)
    source = find(spec)
    if asked and not asked.endswith("/") and not Path(asked).is_dir():
        return Path(asked).expanduser().absolute()
    folder = Path(asked).expanduser().absolute() if asked else _usual_folder(spec)
    return _free(folder, f"{source.stem}.{spec.job}", spec)


def _usual_folder(spec: RunSpec) -> Path:
    """Beside the notebook or in the home; in a container where neither stays, what is kept."""
    if not sent_along(spec):
        return find(spec).parent
    there = Path.cwd()
    if spec.alone:
        ours = there.samefile(spec.task_dir) or not os.access(there, os.W_OK)
        return spec.kept.parent if ours else there
    return spec.home if there.samefile(spec.task_dir) else there


def _free(folder: Path, stem: str, spec: RunSpec) -> Path:
    """The first name that nothing but this job has."""
    names = [f"{stem}.ipynb", *(f"{stem}-{number}.ipynb" for number in range(2, MOST_NUMBERS))]
    return next(
        (path for name in names if _ours(path := folder / name, spec.uid)), folder / names[0]
    )


def _ours(path: Path, uid: str) -> bool:
    """Whether the path is free, or holds the output of an earlier attempt."""
    if not path.exists():
        return True
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))["metadata"]["carrel"]
        return bool(uid) and facts["uid"] == uid
    except (OSError, ValueError, KeyError, TypeError):
        return False


FILE: Final = "restart.ipynb"
BEGIN: Final = "carrel_begin"


def save_restart_point(folder: Path, notebook: Notebook, begin: int) -> None:
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


def load_restart_point(folder: Path) -> tuple[Notebook, int] | None:
    """The notebook and the cell to go on from; ``None`` without a restart point."""
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
