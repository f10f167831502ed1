"""Shared by all magics: the kernel's client, finding jobs by name, and printed results."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import Magics
from typing_extensions import override

from carrel import options, wording
from carrel.errors import ApiError, CarrelError
from carrel.magics.parsing import MagicParser, parser
from carrel.models import Forecast
from carrel.options import Surface

if TYPE_CHECKING:
    from carrel.client import Client
    from carrel.models import Workload
    from carrel.notebook.job import Job


def connect() -> "Client":
    """A client made from the environment. Imported here: it takes a while, and starts need none."""
    from carrel.client import Client

    return Client()


class Connection:
    """The client, connected on first use. Tests replace ``make``."""

    def __init__(self, make: Callable[[], "Client"] = connect) -> None:
        self._make = make
        self._client: Client | None = None

    @property
    def client(self) -> "Client":
        """The client. Raises ``CarrelError`` when not signed in."""
        if self._client is None:
            self._client = self._make()
        return self._client

    def find(self, name: str, project: str | None = None) -> "Workload":
        """A workload by ``NAME`` or ``PROJECT/NAME``.

        A bare name is looked for in the default project, then among one's own.
        Raises ``UsageError`` when there is none, or more than one.
        """
        head, slash, tail = name.partition("/")
        if slash:
            return self.client.get_workload(head, tail)
        if project:
            return self.client.get_workload(project, name)
        mine = [w for w in self.mine() if w.name == name]
        if len(mine) == 1:
            return mine[0]
        if mine:
            projects = " or ".join(f"{w.project}/{w.name}" for w in mine)
            raise UsageError(f"Which `{name}`? Write {projects}.")
        from carrel.client.submit import default_project

        try:
            return self.client.get_workload(default_project(self.client), name)
        except ApiError as error:
            if error.status != 404:
                raise
            raise UsageError(f"There is no job `{name}`; %jobs lists yours.") from error

    def mine(self) -> "list[Workload]":
        """The caller's work, workspaces and parts of other work left out."""
        user = self.client.whoami().user
        found = self.client.list_workloads(user=user)
        return [workload for workload in found if workload.spec.kind != "workspace"]


@contextmanager
def one_line() -> Iterator[None]:
    """Turn ``CarrelError`` into a ``UsageError``, which IPython shows in one line."""
    try:
        yield
    except CarrelError as error:
        raise UsageError(str(error)) from error


class PlainText:
    """Text that is displayed without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    @override
    def __repr__(self) -> str:
        return self.text


def dry_run_text(body: Mapping[str, Any], answer: Forecast, size: int = 0) -> str:
    """The forecast in words, and the specification."""
    inputs = ", ".join(body.get("inputs", ()))
    devices, share = int(body.get("gpu_devices", 1)), float(body.get("gpus", 0))
    asked = wording.shares(devices, share) if devices > 1 else wording.gpus(share)
    lines = [
        answer.forecast.sentence or "It would be accepted.",
        f"project: {body['project']}, {asked}",
    ]
    if inputs:
        lines.append(f"variables: {inputs} ({size:,} bytes)")
    shown = {key: value for key, value in body.items() if key not in ("files", "project", "inputs")}
    shown["secret_environment"] = dict.fromkeys(body.get("secret_environment", ()), "…")
    lines += [f"{key}: {value}" for key, value in shown.items() if value not in ({}, [], "", None)]
    lines.append("Nothing was sent.")
    return "\n".join(lines)


def stream(pieces: Iterable[str], name: str) -> None:
    """Print pieces as they come; the stop button ends only the output."""
    last = "\n"
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            last = piece
    except KeyboardInterrupt:
        sys.stdout.write(f"\n`{name}` goes on; only the output stopped here.\n")
        return
    if not last.endswith("\n"):
        sys.stdout.write("\n")


PROJECT: Final = tuple(row for row in options.rows(Surface.MAGIC) if row.flag == "project")


class CarrelMagics(Magics):
    """Work from a notebook. ``connection`` is that of the kernel."""

    connection = Connection()

    def handle(self, workload: "Workload") -> "Job":
        """A workload's handle."""
        from carrel.notebook.job import Job

        return Job(self.connection.client, workload)

    def read(self, made: MagicParser, line: str) -> Any:
        """A parsed line, or the help that it asks for."""
        parsed = made.read(line)
        return PlainText(made.format_help()) if parsed.help else parsed

    def find_one(self, magic: str, parsed: Any) -> "Workload":
        """The job that a line names. Raises ``UsageError``."""
        if not parsed.names:
            raise UsageError(f"%{magic}: which job? %jobs lists yours.")
        with one_line():
            return self.connection.find(parsed.names, parsed.option_project)

    def names(self, verb: str, line: str) -> Any:
        """The arguments of a line that names jobs, or the help that it asks for."""
        made = parser(f"%{verb}", f"{verb.capitalize()} jobs.", PROJECT, "Names.", many=True)
        parsed = self.read(made, line)
        if isinstance(parsed, PlainText):
            return parsed
        if not parsed.names:
            raise UsageError(f"%{verb}: which job? %jobs lists yours.")
        return parsed

    def find_many(self, verb: str, line: str) -> "list[Job] | PlainText":
        """The jobs that a line names, or the help that it asks for."""
        parsed = self.names(verb, line)
        if isinstance(parsed, PlainText):
            return parsed
        with one_line():
            found = [self.connection.find(name, parsed.option_project) for name in parsed.names]
            return [self.handle(workload) for workload in found]

    def show(self, job: "Job") -> None:
        """Show a job's live view now, not as the value of the cell."""
        from IPython.display import display

        display(job)  # type: ignore[no-untyped-call]
