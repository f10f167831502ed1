"""What all magics share: the kernel's connection, names of jobs, and what they return."""

from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import Magics

from carrel import options
from carrel.magics.connection import Connection, one_line
from carrel.magics.parsing import Parser, parser
from carrel.magics.shown import Printed
from carrel.options import Surface

if TYPE_CHECKING:
    from carrel.models import Workload
    from carrel.notebook.job import Job

PROJECT: Final = tuple(row for row in options.rows(Surface.MAGIC) if row.flag == "project")


class CarrelMagics(Magics):
    """Work from a notebook. ``connection`` is that of the kernel."""

    connection = Connection()

    def take(self, workload: "Workload") -> "Job":
        """A workload's handle."""
        from carrel.notebook.job import Job

        return Job(self.connection.client, workload)

    def read(self, made: Parser, line: str) -> Any:
        """A parsed line, or the help that it asks for."""
        parsed = made.read(line)
        return Printed(made.format_help()) if parsed.help else parsed

    def one(self, magic: str, parsed: Any) -> "Workload":
        """The job that a line names. Raises ``UsageError``."""
        if not parsed.names:
            raise UsageError(f"%{magic}: which job? %jobs lists yours.")
        with one_line():
            return self.connection.find(parsed.names, parsed.option_project)

    def named(self, verb: str, line: str) -> "list[Job] | Printed":
        """The jobs that a line names, or the help that it asks for."""
        made = parser(f"%{verb}", f"{verb.capitalize()} jobs.", PROJECT, "Names.", many=True)
        parsed = self.read(made, line)
        if isinstance(parsed, Printed):
            return parsed
        if not parsed.names:
            raise UsageError(f"%{verb}: which job? %jobs lists yours.")
        with one_line():
            found = [self.connection.find(name, parsed.option_project) for name in parsed.names]
            return [self.take(workload) for workload in found]

    def show(self, job: "Job") -> None:
        """Show a job's live view now, not as the value of the cell."""
        from IPython.display import display

        display(job)  # type: ignore[no-untyped-call]
