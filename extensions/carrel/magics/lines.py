"""The magics. Each parses its line, asks, and returns something that shows itself."""

from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from carrel.magics.connection import Connection, one_line
from carrel.magics.parsing import Parser, parser
from carrel.magics.shown import Cluster, Printed, stream
from carrel.notebook import words
from carrel.notebook.capture import capture
from carrel.notebook.options import PLACE, TRAIN, Option, chosen, fields

if TYPE_CHECKING:
    from carrel.models import Workload
    from carrel.notebook.job import Job

MAGICS: Final = {
    "cell": ("train",),
    "line": ("jobs", "quota", "gpus", "logs", "wait", "cancel", "suspend", "resume", "job"),
}
TRAIN_PARSER: Final = parser(
    "%%train",
    "Send this cell away as a training: its code, the variables named by --in, its folder.",
    TRAIN,
    names="The training's name.",
)
PROJECT: Final = PLACE[:1]
FOLLOW: Final = Option("follow", None, "Go on until it ends; the stop button ends it.", short="f")
TAIL: Final = Option("tail", int, "Only the last so many lines.", shown="N")


@magics_class
class CarrelMagics(Magics):
    """Trainings from a notebook."""

    connection = Connection()

    @cell_magic
    def train(self, line: str, cell: str) -> Any:
        """Send this cell away as a training; `%%train -h` shows the options."""
        parsed = TRAIN_PARSER.read(line)
        if parsed.help:
            return Printed(TRAIN_PARSER.format_help())
        wanted, given = chosen(parsed), fields(parsed, TRAIN)
        if parsed.names and wanted["name"]:
            raise UsageError("%%train: the name is there twice; write it once.")
        if parsed.names:
            given["name"] = parsed.names
        shell: Any = self.shell
        namespace = shell.user_ns
        with one_line():
            captured = capture(cell, wanted["in"] or (), namespace)
            client = self.connection.client
            from carrel.notebook.submit import body_here

            body = body_here(client, captured, given)
            if wanted["dry-run"]:
                forecast = client.create_workload(body, dry_run=True)
                return Printed(_told(body, forecast.forecast.sentence, captured.size))
            job = self._job(client.create_workload(body))
        if wanted["to"]:
            namespace[wanted["to"]] = job
        if wanted["wait"]:
            self._show(job)
            with one_line():
                job.wait()
            return None
        return job

    @line_magic
    def job(self, line: str) -> Any:
        """A training's handle and live view: `%job NAME`."""
        parsed = self._read(parser("%job", "A training.", PROJECT, names="Its name."), line)
        if isinstance(parsed, Printed):
            return parsed
        if not parsed.names:
            raise UsageError("%job: which training? %jobs lists yours.")
        with one_line():
            return self._job(self._find(parsed, parsed.names))

    @line_magic
    def jobs(self, line: str) -> Any:
        """Your trainings, live."""
        parsed = self._read(parser("%jobs", "Your trainings, live."), line)
        if isinstance(parsed, Printed):
            return parsed
        from carrel.widgets.tables import JobsView

        with one_line():
            client = self.connection.client
            return JobsView(client, self.connection.mine(), client.whoami().user)

    @line_magic
    def quota(self, line: str) -> Any:
        """The quota line of your projects, live."""
        parsed = self._read(parser("%quota", "GPUs of your projects, live."), line)
        if isinstance(parsed, Printed):
            return parsed
        from carrel.widgets.tables import QuotaView

        with one_line():
            client = self.connection.client
            return QuotaView(client, client.list_projects())

    @line_magic
    def gpus(self, line: str) -> Any:
        """The cluster's GPUs and who holds them."""
        parsed = self._read(parser("%gpus", "The cluster's GPUs and who holds them."), line)
        if isinstance(parsed, Printed):
            return parsed
        with one_line():
            return Cluster(self.connection.client.nodes())

    @line_magic
    def logs(self, line: str) -> Any:
        """What a training printed: `%logs NAME [-f] [--tail N]`."""
        made = parser("%logs", "Output of a training.", (*PROJECT, FOLLOW, TAIL), "Its name.")
        parsed = self._read(made, line)
        if isinstance(parsed, Printed):
            return parsed
        if not parsed.names:
            raise UsageError("%logs: which training? %jobs lists yours.")
        with one_line():
            workload = self._find(parsed, parsed.names)
            stream(
                self.connection.client.logs(
                    workload.project,
                    workload.name,
                    follow=parsed.option_follow,
                    tail=parsed.option_tail,
                ),
                workload.name,
            )
        return None

    @line_magic
    def wait(self, line: str) -> Any:
        """Wait until trainings end: `%wait NAME ...`; the stop button leaves them running."""
        jobs = self._named("wait", line)
        if isinstance(jobs, Printed):
            return jobs
        with one_line():
            ended = [f"`{job.name}`: {words.phase_word(job.wait()).lower()}" for job in jobs]
        return Printed("\n".join(ended))

    @line_magic
    def cancel(self, line: str) -> Any:
        """End and remove trainings: `%cancel NAME ...`."""
        return self._steer("cancel", line, "{} is being cancelled; its checkpoints stay.")

    @line_magic
    def suspend(self, line: str) -> Any:
        """Stop trainings and keep them: `%suspend NAME ...`."""
        return self._steer("suspend", line, "{0} is being suspended; %resume {1} queues it again.")

    @line_magic
    def resume(self, line: str) -> Any:
        """Queue trainings again: `%resume NAME ...`."""
        return self._steer("resume", line, "{} is in the queue again.")

    def _steer(self, verb: str, line: str, told: str) -> Any:
        jobs = self._named(verb, line)
        if isinstance(jobs, Printed):
            return jobs
        lines = []
        with one_line():
            for job in jobs:
                getattr(job, verb)()
                lines.append(told.format(f"`{job.name}`", job.name))
        return Printed("\n".join(lines))

    def _named(self, verb: str, line: str) -> "list[Job] | Printed":
        """The trainings that a line names, or the help it asks for."""
        made = parser(f"%{verb}", f"{verb.capitalize()} trainings.", PROJECT, "Names.", many=True)
        parsed = self._read(made, line)
        if isinstance(parsed, Printed):
            return parsed
        if not parsed.names:
            raise UsageError(f"%{verb}: which training? %jobs lists yours.")
        with one_line():
            found = [self._find(parsed, name) for name in parsed.names]
            return [self._job(workload) for workload in found]

    def _job(self, workload: "Workload") -> "Job":
        from carrel.notebook.job import Job

        return Job(self.connection.client, workload)

    def _find(self, parsed: Any, name: str) -> "Workload":
        return self.connection.find(name, parsed.option_project)

    def _read(self, made: Parser, line: str) -> Any:
        parsed = made.read(line)
        return Printed(made.format_help()) if parsed.help else parsed

    def _show(self, job: "Job") -> None:
        from IPython.display import display

        display(job)  # type: ignore[no-untyped-call]


def _told(body: dict[str, Any], forecast: str, size: int) -> str:
    """A dry run in words."""
    inputs = ", ".join(body["inputs"])
    lines = [
        forecast or "It would be accepted.",
        f"project: {body['project']}, {words.gpus(float(body.get('gpus', 0)))}",
        f"folder: {body['command'][-1]}",
        f"variables: {f'{inputs} ({size:,} bytes)' if inputs else 'none'}",
        "Nothing was sent.",
    ]
    return "\n".join(lines)
