"""A job as a notebook holds it: ask it, steer it, look at it.

Showing a job (as the last value of a cell) opens a live view; see ``carrel.widgets``.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from carrel import estimate, remedies, wording
from carrel.client import Client
from carrel.client.shared_events import until
from carrel.client.submit import default_project, replacing, words_of
from carrel.errors import ApiError
from carrel.models import MetricPoint, StoredCheckpoint, StoredCopy, StoredFile, Workload
from carrel.results import NoResult
from carrel.volumes import in_workspace, mount_folder

if TYPE_CHECKING:
    from carrel.client.sync import Endpoint
    from carrel.widgets.live import WorkView
    from carrel_schema.answers import Trials


def submit(
    command: str | Sequence[str],
    *,
    name: str | None = None,
    project: str | None = None,
    gpus: float = 0,
    kind: str = "training",
    replace: bool = False,
    client: Client | None = None,
    **fields: Any,
) -> "Job":
    """Submit a job and return its handle, which a notebook shows as a live view.

    Args:
        command: the program and its arguments; a text is split as a shell splits a line.
        name: its name; by default the service numbers it (``job-1``).
        project: where it belongs; by default the configured one, or the only one.
        gpus: GPUs per task.
        kind: of work: ``distributed`` with ``tasks=4``, ``experiment`` with ``experiment={...}``,
            ``inference`` with ``inference={...}``, ...
        replace: the work of that name is cancelled before; otherwise its name is refused.
        client: which client to use; by default one made from the environment.
        fields: further fields of the API's workload (docs/api.md), such as ``environment``.

    Raises:
        CarrelError: when refused or unreachable; ``BadSetting`` without a project.
    """
    used = client or Client()
    named: Mapping[str, str] = {"name": name} if name else {"name_prefix": "job"}
    body = {
        "kind": kind,
        "project": project or default_project(used),
        "command": words_of(command),
        "gpus": gpus,
        **named,
        **fields,
    }
    if in_workspace():
        mount_folder(body, Path.cwd())
    return Job(used, replacing(used, body) if replace else used.create_workload(body))


def view_of(client: Client, workload: Workload) -> "WorkView":
    """The live view of a workload."""
    from carrel.widgets.board import TensorBoardView
    from carrel.widgets.endpoint import EndpointView
    from carrel.widgets.experiment import ExperimentView
    from carrel.widgets.job import JobView

    views: dict[str, Callable[[Client, Workload], WorkView]] = {
        "experiment": ExperimentView,
        "inference": EndpointView,
        "tensorboard": TensorBoardView,
    }
    return views.get(workload.spec.kind, JobView)(client, workload)


class Job:
    """A job. Every method raises ``CarrelError`` when refused or unreachable."""

    def __init__(self, client: Client, workload: Workload) -> None:
        self._client, self._workload = client, workload
        self._gone = False
        self._view: WorkView | None = None

    @property
    def name(self) -> str:
        """The name within the project."""
        return self._workload.name

    @property
    def project(self) -> str:
        """The project of the job."""
        return self._workload.project

    @property
    def workload(self) -> Workload:
        """The workload, requested now; of a removed job as last known."""
        try:
            self._workload = self._client.get_workload(self.project, self.name)
        except ApiError as error:
            if error.status != 404:
                raise
            self._gone = True
        return self._workload

    @property
    def status(self) -> str:
        """The phase now: ``pending``, ``running``, ``succeeded``, ..., ``deleted``."""
        phase = self.workload.status.phase
        return "deleted" if self._gone else phase

    @property
    def reason(self) -> str:
        """The reason why the job is pending, preempted, stopped or failed; else empty."""
        return wording.why(self.workload)

    def wait(self, timeout: float | None = None) -> str:
        """Wait until it ends, at most ``timeout`` seconds; returns its phase then.

        The stop button ends the waiting and leaves the job running.
        """
        return self._wait(_at_rest, timeout)

    def wait_ready(self, timeout: float | None = None) -> str:
        """Wait until it runs, an endpoint until it answers, at most ``timeout`` seconds.

        Returns its phase then; what ended or stopped before is not waited for any longer.
        """
        return self._wait(_ready, timeout)

    def _wait(self, met: Callable[[Workload], bool], timeout: float | None) -> str:
        waiting = until(met, self._client.aio, self.project, self.name, timeout)
        try:
            self._client.loop.run(waiting)
        except KeyboardInterrupt:
            print(f"`{self.name}` goes on; only the waiting stopped. End it with job.cancel().")  # noqa: T201 - said to the person who pressed stop
        return self.status

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end; return the value of the cell's last line, or raise its exception.

        Raises:
            TimeoutError: when it has not ended after ``timeout`` seconds.
            NoResult: when it ended without handing anything back.
        """
        phase = self.wait(timeout)
        if not (self._gone or self._workload.at_rest):
            raise TimeoutError(f"`{self.name}` has not ended yet: it is {phase}.")
        try:
            return self._client.result(self.project, self.name)
        except NoResult as error:
            why = wording.why(self._workload) or str(error)
            raise NoResult(f"`{self.name}` {phase} without a result: {why}") from error

    def trials(self) -> "Trials":
        """The trials of an experiment, with parameters and values."""
        return self._client.trials(self.project, self.name)

    def run_best(self, kind: str = "training", name: str | None = None, **changes: Any) -> "Job":
        """Train longer with the best parameters of an experiment, or serve them.

        Args:
            kind: ``training`` or ``inference``.
            name: of the new job; by default the experiment's with ``-best``.
            changes: fields of the API's workload that are to be otherwise.
        """
        made = self._client.run_best(
            self.project, self.name, kind=kind, new_name=name, changes=changes
        )
        return Job(self._client, made)

    @property
    def endpoint(self) -> "Endpoint":
        """The endpoint of this job, or of any job with a port, for requests."""
        return self._client.endpoint(self.project, self.name)

    def logs(self, *, tail: int | None = None, attempt: int | None = None) -> str:
        """The output of the job, by default of the latest attempt."""
        return "".join(self._client.logs(self.project, self.name, tail=tail, attempt=attempt))

    def follow(self, *, tail: int | None = None) -> Iterator[str]:
        """The output, piece by piece, until the attempt ends."""
        return iter(self._client.logs(self.project, self.name, follow=True, tail=tail))

    def metrics(self) -> dict[str, list[MetricPoint]]:
        """The metrics that the job reported."""
        return self._client.metrics(self.project, self.name)

    def artifacts(self) -> list[StoredFile]:
        """The artifacts of the job."""
        return list(self._client.artifacts(self.project, self.name).items)

    def fetch(self, path: str = "", to: str | Path = ".") -> list[Path]:
        """Copy a file or folder of the job here; returns the files.

        While it runs that is one in the folder that it works in, afterwards one of its artifacts;
        without a path, all artifacts.
        """
        return self._client.fetch(self.project, self.name, path, to)

    def put(self, source: str | Path, path: str = "") -> None:
        """Copy a file or folder into the running job, by default under its own name."""
        self._client.put(self.project, self.name, source, path)

    def checkpoints(self) -> list[StoredCheckpoint]:
        """The checkpoints of the job, oldest first."""
        return list(self._client.checkpoints(self.project, self.name).items)

    def keep(self, checkpoint: str | int, name: str | None = None) -> StoredCopy:
        """Keep a checkpoint, by its name or step, beyond the job."""
        return self._client.keep_checkpoint(self.project, self.name, str(checkpoint), as_name=name)

    def register(
        self, model: str, path: str = "", *, checkpoint: str = "", description: str = ""
    ) -> StoredCopy:
        """Make the next version of a model of an artifact of this job, or of a checkpoint."""
        return self._client.register_model(
            self.project, model, self.name, path, checkpoint=checkpoint, description=description
        )

    def estimate(self) -> str:
        """The estimate of its start or end as a sentence, or why there is none."""
        now = time.time()
        found = self._client.loop.run(estimate.read(self._client.aio, self.workload, now))
        return estimate.sentence(self._workload, found, now)

    def remedies(self) -> list[str]:
        """Sentences on what would start it while it waits, each tried just now."""
        if not remedies.may_have(self.workload):
            return []
        return [one.sentence for one in self._client.remedies(self.project, self.name)]

    def cancel(self, *, children: bool = False) -> None:
        """End and remove the job, with its artifacts and checkpoints.

        What it submitted itself goes on; with ``children`` that is ended, too.
        """
        self._client.delete_workload(self.project, self.name, children=children)

    def update(self, **changes: Any) -> None:
        """Change the job: `job.update(time_limit_seconds=3600, labels={"keep": "yes"})`."""
        self._workload = self._client.update(self.project, self.name, changes)

    def suspend(self) -> None:
        """Suspend the job."""
        self._workload = self._client.suspend(self.project, self.name)

    def resume(self) -> None:
        """Queue the job again; it goes on from its checkpoint."""
        self._workload = self._client.resume(self.project, self.name)

    def view(self) -> "WorkView":
        """The live view of the job."""
        if self._view is None:
            self._view = view_of(self._client, self._workload)
        return self._view

    @override
    def __repr__(self) -> str:
        return f"<Job {wording.summary(self._workload, time.time())}>"

    def _ipython_display_(self, **options: Any) -> None:
        self.view()._ipython_display_(**options)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.view()._repr_mimebundle_(**options)


def _at_rest(workload: Workload) -> bool:
    return workload.at_rest


def _ready(workload: Workload) -> bool:
    endpoint = workload.status.endpoint
    if workload.spec.kind == "inference":
        return workload.at_rest or (endpoint is not None and endpoint.ready > 0)
    return workload.at_rest or workload.status.phase == "running"
