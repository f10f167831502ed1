"""``%run_as_job`` and ``%tensorboard``: whole notebooks as jobs, and curves of jobs."""

import os
from pathlib import Path
from typing import Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class

from carrel import options
from carrel.magics.base import CarrelMagics, PlainText, dry_run_text, one_line
from carrel.magics.parsing import parser
from carrel.options import RequestFields, Surface

KINDS: Final = ("notebook", "schedule")
BOARD: Final = ("tensorboard",)
OF_CELLS: Final = frozenset({"in"})
NOTEBOOK_ROWS: Final = tuple(
    row for row in options.rows(Surface.MAGIC, KINDS) if row.flag not in OF_CELLS
)
BOARD_ROWS: Final = tuple(
    row for row in options.rows(Surface.MAGIC, BOARD) if row.flag not in OF_CELLS
)
RUN: Final = parser(
    "%run_as_job",
    "Run the open notebook, or another one, as a job; with --schedule by the clock.",
    NOTEBOOK_ROWS,
    names="The notebook's file; by default the open one, as it was saved last.",
)
CURVES: Final = parser(
    "%tensorboard", "Start a TensorBoard over jobs.", BOARD_ROWS, names="The jobs.", many=True
)


@magics_class
class NotebookMagics(CarrelMagics):
    """Notebooks as work."""

    @line_magic
    def run_as_job(self, line: str) -> Any:
        """Run the open notebook, or `%run_as_job PATH`, as a job."""
        parsed = self.read(RUN, line)
        if isinstance(parsed, PlainText):
            return parsed
        asked = RUN.asked(parsed, KINDS)
        path = parsed.names or _open_notebook(self.shell)
        with one_line():
            if "dry-run" in asked.own:
                return PlainText(self._dry_run(path, asked))
            job = self.handle(self._begin(path, asked))
        return self._given(job, asked)

    @line_magic
    def tensorboard(self, line: str) -> Any:
        """Curves of jobs: `%tensorboard JOB ...`."""
        parsed = self.read(CURVES, line)
        if isinstance(parsed, PlainText):
            return parsed
        if not parsed.names:
            raise UsageError("%tensorboard: of which jobs? %jobs lists yours.")
        asked = CURVES.asked(parsed, BOARD)
        asked.fields.pop("tensorboard")
        with one_line():
            from carrel.client import notebooks

            found = [self.connection.find(name, parsed.option_project) for name in parsed.names]
            projects = {workload.project for workload in found}
            if len(projects) > 1:
                raise UsageError("%tensorboard: the jobs are of several projects; take one's.")
            fields = {**asked.fields, "project": projects.pop()}
            jobs = [workload.name for workload in found]
            return self._given(
                self.handle(notebooks.tensorboard(self.connection.client, jobs, **fields)), asked
            )

    def _begin(self, path: str, asked: RequestFields) -> Any:
        from carrel.client import notebooks

        client, fields = self.connection.client, dict(asked.fields)
        section = _arguments(fields.pop("notebook", {}))
        if asked.kind == "notebook":
            return notebooks.run_notebook(client, path, **section, **fields)
        clock = dict(fields.pop("schedule"))
        clock["starting_deadline"] = clock.pop("starting_deadline_seconds", 3600.0)
        clock.pop("runs", None)
        if "name" not in fields:
            raise UsageError("%run_as_job: a schedule needs a name: --name nightly.")
        return notebooks.schedule(client, notebook=path, **clock, **section, **fields)

    def _dry_run(self, path: str, asked: RequestFields) -> str:
        from carrel.client.notebooks import notebook_body
        from carrel.client.submit import default_project

        client, fields = self.connection.client, dict(asked.fields)
        section = _arguments(fields.pop("notebook", {}))
        project = fields.pop("project", None) or default_project(client)
        body = {"kind": asked.kind, "project": project, "name_prefix": "notebook"}
        if "name" in fields:
            body.pop("name_prefix")
        body |= notebook_body(path, **section, **fields)
        return dry_run_text(body, client.create_workload(body, dry_run=True))

    def _given(self, job: Any, asked: RequestFields) -> Any:
        """Return the handle, put it into the variable of --to, and wait for it with --wait."""
        shell: Any = self.shell
        if "to" in asked.own:
            shell.user_ns[asked.own["to"]] = job
        if "wait" not in asked.own:
            return job
        self.show(job)
        with one_line():
            job.wait()
        return None


def _arguments(section: dict[str, Any]) -> dict[str, Any]:
    """Fields of the API as the client's functions call them."""
    renamed = {"cell_timeout_seconds": "cell_timeout"}
    return {renamed.get(key, key): value for key, value in section.items()}


def _open_notebook(shell: Any) -> str:
    """The file of the notebook that this kernel belongs to. Raises ``UsageError``."""
    named = os.environ.get("JPY_SESSION_NAME") or shell.user_ns.get("__vsc_ipynb_file__", "")
    if not str(named).endswith(".ipynb"):
        raise UsageError("%run_as_job: which notebook? Name its file: %run_as_job report.ipynb.")
    whole = Path(named)
    return str(whole if whole.exists() else Path.cwd() / whole.name)
