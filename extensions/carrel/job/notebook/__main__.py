"""Entry point of a notebook job; see the package."""

import asyncio
import os
import sys

from carrel.job.notebook import reporting, spec
from carrel.job.notebook.reporting import PREEMPTED, NotebookProblem, Preempted
from carrel.job.task import warn
from carrel_process.late_imports import put_off_iri_checks


def main() -> int:
    """Run the notebook that the scheduler asks for; returns the exit code."""
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    put_off_iri_checks()
    try:
        _run()
    except Preempted:
        warn("preempted; the notebook is saved with its outputs so far.")
        return PREEMPTED
    except NotebookProblem as problem:
        warn(problem.sentence)
        return problem.exit_code
    finally:
        reporting.flush()
    return 0


def _run() -> None:
    try:
        found = spec.read()
        try:
            from carrel.job.notebook.run import run
        except ModuleNotFoundError as error:
            raise NotebookProblem(
                "packages_missing",
                f"This Python lacks {error.name}, which runs notebooks: "
                "`pip install jupyter-carrel[jobs]`, or give another Python as the job's command.",
            ) from error
        asyncio.run(run(found))
    except NotebookProblem as problem:
        if not problem.reported:
            reporting.report_problem(problem)
        raise


if __name__ == "__main__":
    sys.exit(main())
