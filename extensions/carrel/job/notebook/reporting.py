"""Reports of a notebook job: its progress, and the problem that ends it."""

from typing import Any, Final

from carrel.job.report import reporter
from carrel.job.task import warn

FAILED: Final = 1
"""Exit code when a cell failed or the kernel was lost."""
NOT_STARTED: Final = 2
"""Exit code when no cell could be run."""
PREEMPTED: Final = 143
"""Exit code after a request to stop: 128 + SIGTERM."""


class NotebookProblem(Exception):  # noqa: N818 - an outcome to report
    """The reason why the notebook could not be run to its end.

    Attributes:
        code: stable word for the cause.
        sentence: for people.
        exit_code: of the process.
        reported: whether the scheduler has it.
    """

    def __init__(self, code: str, sentence: str, exit_code: int = NOT_STARTED) -> None:
        super().__init__(sentence)
        self.code, self.sentence, self.exit_code = code, sentence, exit_code
        self.reported = False


class Preempted(Exception):  # noqa: N818 - an outcome
    """The job was preempted before its last cell had run."""


LONGEST_ERROR = 2000
FLUSH_SECONDS = 10.0


class NotebookProgress:
    """Reports progress to the scheduler and to the job's log. Cells are counted from 1.

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
        """A cell starts."""
        warn(f"cell {index + 1} of {self._cells}")

    def done(self, cells: int) -> None:
        """``cells`` cells have run."""
        self._report({"cell": cells}, cells)

    def failed(self, problem: NotebookProblem, cells: int) -> None:
        """The run ends with this problem after ``cells`` cells."""
        problem.reported = True
        error = problem.sentence[:LONGEST_ERROR]
        self._report({"cell": cells, "error": error, "code": problem.code}, cells)

    def _report(self, facts: dict[str, Any], cells: int) -> None:
        body = {"done": float(cells), "total": float(self._cells), "unit": "cell"}
        reporter().put({**body, "notebook": {**self._facts, **facts}})


def report_problem(problem: NotebookProblem, output: str = "") -> None:
    """Report a problem that came before the first cell."""
    facts = {"output": output, "error": problem.sentence[:LONGEST_ERROR], "code": problem.code}
    reporter().put({"notebook": facts})


def flush() -> None:
    """Wait until everything was sent, at most ``FLUSH_SECONDS``."""
    reporter().flush(FLUSH_SECONDS)
