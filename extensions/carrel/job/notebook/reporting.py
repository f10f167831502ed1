"""How a notebook job ends other than well."""

from typing import Any, Final

from carrel.job.report import reporter
from carrel.job.task import warn

FAILED: Final = 1
"""Exit code when a cell failed or the kernel was lost."""
NOT_STARTED: Final = 2
"""Exit code when no cell could be run."""
GAVE_WAY: Final = 143
"""Exit code after a request to stop: 128 + SIGTERM."""


class NotebookProblem(Exception):  # noqa: N818 - an outcome to report
    """Why the notebook was not run to its end.

    Attributes:
        code: stable word for the cause.
        sentence: for people.
        exit_code: of the process.
        told: whether the scheduler heard of it.
    """

    def __init__(self, code: str, sentence: str, exit_code: int = NOT_STARTED) -> None:
        super().__init__(sentence)
        self.code, self.sentence, self.exit_code = code, sentence, exit_code
        self.told = False


class GaveWay(Exception):  # noqa: N818 - an outcome
    """The job was told to stop before its last cell was done."""


LONGEST_ERROR = 2000
FLUSH_SECONDS = 10.0


class Progress:
    """Tells. Cells are counted from 1.

    Args:
        cells: how many there are.
        output: path of the executed notebook.
        begin: index of the cell that this attempt goes on from; ``None`` at a first attempt.
    """

    def __init__(self, cells: int, output: str, begin: int | None) -> None:
        self._cells = cells
        self._facts: dict[str, Any] = {"cells": cells, "output": output}
        if begin is not None:
            self._facts["resumed_from"] = begin + 1
            warn(f"going on from cell {begin + 1} of {cells}.")

    def starts(self, index: int) -> None:
        """A cell begins to run."""
        warn(f"cell {index + 1} of {self._cells}")

    def done(self, cells: int) -> None:
        """So many cells are done."""
        self._tell({"cell": cells}, cells)

    def failed(self, problem: NotebookProblem, cells: int) -> None:
        """It ends because of this after so many cells."""
        problem.told = True
        error = problem.sentence[:LONGEST_ERROR]
        self._tell({"cell": cells, "error": error, "code": problem.code}, cells)

    def _tell(self, facts: dict[str, Any], cells: int) -> None:
        body = {"done": float(cells), "total": float(self._cells), "unit": "cell"}
        reporter().put({**body, "notebook": {**self._facts, **facts}})


def tell_problem(problem: NotebookProblem, output: str = "") -> None:
    """The run ended before its first cell."""
    facts = {"output": output, "error": problem.sentence[:LONGEST_ERROR], "code": problem.code}
    reporter().put({"notebook": facts})


def flush() -> None:
    """Wait until everything was told, or nobody answers."""
    reporter().flush(FLUSH_SECONDS)
