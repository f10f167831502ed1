"""``carrel.compare``: jobs and trials side by side in a notebook.

    carrel.compare("train-7", "train-8")      # shown as curves and a table
    carrel.compare("sweep").rows              # an experiment stands for its trials

Showing it (as the last value of a cell) opens a view; see ``carrel.widgets.compare``.
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from carrel.client import Client
from carrel.client.submit import default_project
from carrel.comparing import ComparedRun, runs_of, sheet_of, split
from carrel.errors import BadSetting
from carrel.models import Workload
from carrel.notebook.job import Job

if TYPE_CHECKING:
    from carrel.widgets.compare import CompareView

Reference = str | Workload | Job


class Comparison:
    """The runs as of the time they were read.

    Attributes:
        runs: with parameters, last metrics and curves; see ``carrel.comparing.ComparedRun``.
        rows: the table, one mapping a run.
    """

    def __init__(self, client: Client, runs: list[ComparedRun]) -> None:
        self._client = client
        self.runs = runs
        self._sheet = sheet_of(runs)
        self.rows: list[dict[str, Any]] = self._sheet.rows

    def csv(self, path: str | Path | None = None) -> str:
        """The table as CSV; written to ``path`` as well where one is named. Raises ``OSError``."""
        text = self._sheet.csv()
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def view(self) -> "CompareView":
        """The view of curves and table."""
        from carrel.widgets.compare import CompareView

        return CompareView(self._client, self.runs, self._sheet)

    @override
    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(run.label for run in self.runs)}>"

    def _ipython_display_(self, **options: Any) -> None:
        self.view()._ipython_display_(**options)


def compare(
    *jobs: Reference | Iterable[Reference], project: str | None = None, client: Client | None = None
) -> Comparison:
    """Compare jobs and trials: curves over each other, and a table of parameters and last values.

    Args:
        jobs: names, ``PROJECT/NAME``, jobs as ``submit`` returned them, or lists of these; an
            experiment stands for its trials.
        project: of names without one; by default the configured one, or the only one.
        client: which client to use; by default one made from the environment.

    Raises:
        CarrelError: when one is not there, or when nothing is named (``BadSetting``).
    """
    used = client or Client()
    named = [one for some in jobs for one in _each(some)]
    if not named:
        raise BadSetting("Which runs? Name them: carrel.compare('train-7', 'train-8').")
    where = project
    if where is None and any(isinstance(one, str) and "/" not in one for one in named):
        where = default_project(used)
    references = [
        split(one, where) if isinstance(one, str) else (one.project, one.name) for one in named
    ]
    return Comparison(used, used.loop.run(runs_of(used.aio, references, time.time())))


def _each(some: Reference | Iterable[Reference]) -> list[Reference]:
    return [some] if isinstance(some, str | Workload | Job) else list(some)
