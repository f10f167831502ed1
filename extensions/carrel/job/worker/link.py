"""Reports of a trial that runs in a worker: collected here, sent by the worker at its end.

So a short trial costs no request. One that reports for longer is heard of every second; one that
asks (``should_prune``, ``suggest_float``) gets its answer at once.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from carrel.job import api, report
from carrel.job import trial as trials
from carrel.job.event_files import write_trial

TOLD_SECONDS: Final = 1.0
MOST_POINTS: Final = 10_000


class Pruned(BaseException):
    """Ends a trial that is pruned and does not ask; no error, so no script catches it as one."""


class WorkerLink(trials.TrialLink):
    """The connection of a trial to its experiment, through its worker.

    Args:
        url: of the worker's workload.
        token: the task's own token.
        metric: the reported value that counts.
    """

    def __init__(self, url: str, token: str, metric: str) -> None:
        super().__init__(url, token)
        self._metric = metric
        self._number = -1
        self._values: list[Mapping[str, Any]] = []
        self._points: list[tuple[float, int, Mapping[str, float]]] = []
        self._result: float | None = None
        self._metrics: dict[str, float] = {}
        self._told_at = 0.0
        self._asked = False

    @classmethod
    def from_environment(cls) -> "WorkerLink":
        """The link of this process, which ``carrel.trial`` and ``carrel.report`` use from here."""
        env = os.environ
        where = f"{env['CARREL_PROJECT']}/{env['CARREL_WORKLOAD']}"
        url = f"{env['CARREL_URL'].rstrip('/')}/api/v1/workloads/{where}"
        made = cls(url, env["CARREL_TASK_TOKEN"], env.get("CARREL_METRIC", trials.METRIC))
        trials.use_link(made)
        report.use_reporter(WorkerReporter(made))
        return made

    def begin(self, number: int) -> None:
        """A trial begins; it has folders of its own below those of the worker."""
        self._number, self._values, self._points = number, [], []
        self._result, self._metrics = None, {}
        self._pruned = self._silent = self._asked = False
        self._told_at = time.monotonic()
        for name in ("CARREL_CHECKPOINT_DIR", "CARREL_EVENTS_DIR"):
            if name in os.environ:
                os.environ[name] = str(Path(os.environ[name]) / f"trial-{number}")

    def end(self, succeeded: bool | None) -> dict[str, Any]:
        """End the trial and return what is not yet reported; ``succeeded`` ``None``: preempted."""
        if self._points and succeeded is not None:
            write_trial(os.environ, self._points, succeeded=succeeded)
        found: dict[str, Any] = {"values": self._values, "metrics": self._metrics}
        return found if self._result is None else {**found, "result": self._result}

    @override
    def put(self, body: Mapping[str, Any]) -> None:
        if self._pruned and not self._asked:
            raise Pruned
        self._values = [*self._values, *body["values"]][-trials.MOST_VALUES :]
        if time.monotonic() - self._told_at > TOLD_SECONDS:
            self._tell(asks=False)

    @override
    def deliver(self, body: Mapping[str, Any]) -> None:
        self._result = body["result"]

    @override
    def ask(self) -> bool:
        self._asked = True
        if not self._pruned:
            self._tell(asks=True)
        return self._pruned

    def take(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """Take what ``carrel.report`` was told; the metric counts like a value of the trial."""
        self.record(step, metrics)
        if self._metric in metrics:
            self.put({"values": [{"step": step, "value": metrics[self._metric]}]})

    def record(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """Keep metrics for TensorBoard, and the last of each."""
        self._metrics |= metrics
        last = self._points[-1][1] + 1 if self._points else 0
        if len(self._points) < MOST_POINTS:
            self._points.append((time.time(), last if step is None else step, dict(metrics)))

    def _tell(self, *, asks: bool) -> None:
        """Send the values; while the scheduler does not answer, they are kept and it goes on."""
        self._told_at = time.monotonic()
        body = {"values": self._values, "asks": asks, "trial": self._number}
        try:
            status = self._post(json.dumps(body).encode())
        except OSError:
            return
        if status < 300:
            self._values = []

    @override
    def _request(self, part: str, content: bytes) -> tuple[int, Any]:
        if part == "suggestions":
            content = json.dumps({**json.loads(content), "trial": self._number}).encode()
        return api.post_json(f"{self._url}/{part}", self._token, content)


class WorkerReporter(report.Reporter):
    """The implementation of ``carrel.report`` in a worker."""

    def __init__(self, link: WorkerLink) -> None:
        super().__init__(None)
        self._link = link

    @override
    def put(self, body: dict[str, Any]) -> None:
        super().put(body)
        if body.get("metrics"):
            self._link.take(body.get("step"), body["metrics"])

    @override
    def record(self, step: int | None, metrics: Mapping[str, float]) -> None:
        self._link.record(step, metrics)
