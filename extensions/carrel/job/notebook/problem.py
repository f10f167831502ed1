"""How a notebook job ends other than well."""

from typing import Final

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
