"""Line magics: look at work, steer it, and start what needs no cell."""

from typing import Any, Final

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class

from carrel import wording
from carrel.errors import CarrelError
from carrel.magics.base import PROJECT, CarrelMagics, PlainText, one_line, stream
from carrel.magics.parsing import parser
from carrel.options import Option, values

FOLLOW: Final = Option("follow", "Go on until it ends; the stop button ends it.", "", short="f")
TAIL: Final = Option("tail", "Only the last so many lines.", "", values.whole(0, 1_000_000))
TASK: Final = Option(
    "task", "Of one worker, from 0; by default of all.", "", values.whole(0, 10_000)
)
LOGS: Final = (*PROJECT, FOLLOW, TAIL, TASK)


@magics_class
class LineMagics(CarrelMagics):
    """Looking and steering."""

    @line_magic
    def job(self, line: str) -> Any:
        """A job's handle and live view: `%job NAME`."""
        parsed = self.read(parser("%job", "A job.", PROJECT, names="Its name."), line)
        return (
            parsed if isinstance(parsed, PlainText) else self.handle(self.find_one("job", parsed))
        )

    @line_magic
    def jobs(self, line: str) -> Any:
        """Your jobs, live."""
        parsed = self.read(parser("%jobs", "Your jobs, live."), line)
        if isinstance(parsed, PlainText):
            return parsed
        from carrel.widgets.tables import JobsView

        with one_line():
            client = self.connection.client
            return JobsView(client, self.connection.mine(), client.whoami().user)

    @line_magic
    def quota(self, line: str) -> Any:
        """The quota line of your projects and what of their budgets is left, live."""
        parsed = self.read(parser("%quota", "GPUs and budgets of your projects, live."), line)
        if isinstance(parsed, PlainText):
            return parsed
        from carrel.widgets.tables import QuotaView

        with one_line():
            client = self.connection.client
            return QuotaView.of(client)

    @line_magic
    def gpus(self, line: str) -> Any:
        """The cluster's GPUs and who holds them, live."""
        parsed = self.read(parser("%gpus", "The cluster's GPUs and who holds them, live."), line)
        if isinstance(parsed, PlainText):
            return parsed
        from carrel.widgets.cluster import ClusterView

        with one_line():
            client = self.connection.client
            return ClusterView(client, client.nodes())

    @line_magic
    def logs(self, line: str) -> Any:
        """Print the log of a job: `%logs NAME [-f] [--tail N]`; the logs of workers are merged."""
        made = parser("%logs", "Output of a job.", LOGS, "Its name.")
        parsed = self.read(made, line)
        if isinstance(parsed, PlainText):
            return parsed
        from carrel.client.resources.workloads import all_or

        workload = self.find_one("logs", parsed)
        tail, task = (made.value(row, parsed) for row in (TAIL, TASK))
        with one_line():
            pieces = self.connection.client.logs(
                workload.project,
                workload.name,
                follow=bool(parsed.option_follow),
                tail=tail,
                index=all_or(task, workload),
            )
            stream(pieces, workload.name)
        return None

    @line_magic
    def wait(self, line: str) -> Any:
        """Wait until jobs end: `%wait NAME ...`; the stop button leaves them running."""
        jobs = self.find_many("wait", line)
        if isinstance(jobs, PlainText):
            return jobs
        with one_line():
            ended = [f"`{job.name}`: {wording.phase_word(job.wait()).lower()}" for job in jobs]
        return PlainText("\n".join(ended))

    @line_magic
    def cancel(self, line: str) -> Any:
        """End and remove jobs: `%cancel NAME ...`."""
        return self._steer("cancel", line, "{} is being cancelled; its checkpoints go with it.")

    @line_magic
    def suspend(self, line: str) -> Any:
        """Stop jobs and keep them: `%suspend NAME ...`."""
        return self._steer("suspend", line, "{0} is being suspended; %resume {1} queues it again.")

    @line_magic
    def resume(self, line: str) -> Any:
        """Queue jobs again: `%resume NAME ...`."""
        return self._steer("resume", line, "{} is in the queue again.")

    def _steer(self, verb: str, line: str, sentence: str) -> Any:
        asked = self.names(verb, line)
        if isinstance(asked, PlainText):
            return asked
        lines: list[str] = []
        refused: list[Exception] = []
        with one_line():
            for name in asked.names:
                try:
                    job = self.handle(self.connection.find(name, asked.option_project))
                    getattr(job, verb)()
                except (CarrelError, UsageError) as error:
                    refused.append(error)
                    lines.append(f"`{name}`: {error}")
                else:
                    lines.append(sentence.format(f"`{job.name}`", job.name))
            if len(refused) == len(lines) == 1:
                raise refused[0]
        return PlainText("\n".join(lines))
