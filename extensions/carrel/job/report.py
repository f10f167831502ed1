"""``carrel.report``: progress and metrics of a job, sent by a thread that never holds it up.

Reports between two requests are merged, so at most two requests a second are sent. When the job is
no longer known (its token ended) sending stops for good; a report that is refused as such is
dropped; after any other failure the newest values are sent again, with growing pauses. The log of
the job has one line about trouble.
"""

import atexit
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, Final, SupportsFloat

from carrel.job import api
from carrel.job.background import BackgroundOutcome, BackgroundWork
from carrel.job.event_files import EventFiles, open_event_files
from carrel.job.task import present, process_exit, warn

Merge = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
INTERVAL_SECONDS: Final = 0.5
TIMEOUT_SECONDS: Final = 5.0
UNKNOWN_STATUSES: Final = frozenset({401, 403, 404, 410})
REFUSED_STATUSES: Final = frozenset({400, 413, 422})
MOST_NAMES: Final = 200
MOST_PARAMETER_CHARACTERS: Final = 500
MOST_INTEGER: Final = 2**53
EVENTS_SECONDS: Final = 10.0
"""Longest wait for event files: no network is waited for, only what imports and the disk take."""
LAST_SECONDS: Final = 60.0 if "CARREL_TRIAL" in os.environ else 2.0
"""Seconds for which the end of the process waits for requests; a last value is the result."""


class Sender:
    """Sends bodies to one address in a thread, which starts with the first of them.

    Args:
        url: the address.
        token: the task's own token.
        merge: makes one report of two.
        post: sends one body and returns the status; replaced in tests.
        interval: seconds between two sends.
    """

    def __init__(
        self,
        url: str,
        token: str,
        merge: Merge,
        *,
        post: Callable[[bytes], int] | None = None,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._url, self._token = url, token
        self._post = post or self._request
        self._warned = False
        self._work: BackgroundWork[Mapping[str, Any]] = BackgroundWork(
            "carrel-report", merge, self._send, interval
        )

    def put(self, body: Mapping[str, Any]) -> None:
        """Queue a report; returns at once."""
        self._work.put(body)

    def flush(self, seconds: float) -> None:
        """Wait until the queue is empty, at most ``seconds``."""
        self._work.flush(seconds)

    def _send(self, body: Mapping[str, Any]) -> BackgroundOutcome:
        try:
            status = self._post(json.dumps(body).encode())
        except OSError as error:
            self._warn_once(f"reports cannot be sent now ({error}); the job goes on.")
            return BackgroundOutcome.LATER
        if status in UNKNOWN_STATUSES:
            self._warn_once(f"reports are not taken (status {status}); the job goes on without.")
            return BackgroundOutcome.NEVER
        if status in REFUSED_STATUSES:
            self._warn_once(f"a report was refused (status {status}) and dropped.")
        elif status >= 300:
            self._warn_once(f"reports are not taken now (status {status}); the job goes on.")
            return BackgroundOutcome.LATER
        return BackgroundOutcome.DONE

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warn(text)

    def _request(self, content: bytes) -> int:
        return api.request("POST", self._url, self._token, content, timeout=TIMEOUT_SECONDS)[0]


class Reporter:
    """Passes reports on to the scheduler (``sender``) and TensorBoard (``events``).

    Attributes:
        latest: the latest value of each field and metric.
    """

    def __init__(self, sender: Sender | None, events: EventFiles | None = None) -> None:
        self.latest: dict[str, Any] = {}
        self._sender, self._events = sender, events
        self._warned: set[str] = set()

    def report(
        self,
        step: int | None,
        total: float | None,
        metrics: Mapping[str, SupportsFloat],
        params: Mapping[str, object] | None = None,
    ) -> None:
        """See ``carrel.report``."""
        places = {"step": step, "total": total}
        known = self._numbers({name: at for name, at in places.items() if at is not None})
        body: dict[str, Any] = {"metrics": self._numbers(metrics)}
        if "step" in known:
            body |= {"step": int(known["step"]), "done": known["step"]}
        if "total" in known:
            body["total"] = known["total"]
        if params:
            body["parameters"] = {str(name): plain(value) for name, value in params.items()}
        if self._events is not None:
            self._events.put(time.time(), body.get("step"), body["metrics"])
        self.put(body)

    def record(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """Write metrics for TensorBoard only."""
        if self._events is not None:
            self._events.put(time.time(), step, metrics)

    def put(self, body: dict[str, Any]) -> None:
        """Report fields of the API."""
        body = {**body, "at": time.time()}
        self.latest = merge(self.latest, body)
        if self._sender is not None:
            self._sender.put(body)

    def flush(self, seconds: float = 2.0) -> None:
        """Wait until everything was sent and written, at most ``seconds`` for the network."""
        if self._sender is not None:
            self._sender.flush(seconds)
        if self._events is not None:
            self._events.flush(max(seconds, EVENTS_SECONDS))

    def end(self, succeeded: bool | None) -> None:
        """Write how the work ended, last of all; ``None``: it was preempted and goes on later."""
        if self._events is not None and succeeded is not None:
            self._events.end(succeeded, time.time())

    def _numbers(self, metrics: Mapping[str, SupportsFloat]) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, value in metrics.items():
            try:
                number = float(value)
            except (TypeError, ValueError, RuntimeError):  # the last is PyTorch's
                self._warn_once(name, f"{name} is no number and is not reported.")
                continue
            if math.isfinite(number):
                found[name] = number
            else:
                self._warn_once(name, f"{name} is {number} and is not reported.")
        return found

    def _warn_once(self, name: str, text: str) -> None:
        if name not in self._warned and len(self._warned) < MOST_NAMES:
            self._warned.add(name)
            warn(text)


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Two reports as one: newer fields win, metrics and parameters come together."""
    both = {
        field: found
        for field in ("metrics", "parameters")
        if (found := {**old.get(field, {}), **new.get(field, {})})
    }
    return {**old, **new, **both}


def plain(value: object) -> str | float | bool:
    """A parameter as it is sent: switches and finite numbers as they are, all else as text."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral) and abs(int(value)) < MOST_INTEGER:
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Integral) and math.isfinite(value):
        return float(value)
    return str(value).replace("\0", "")[:MOST_PARAMETER_CHARACTERS]


class _ProcessReporter:
    """The reporter of this process; a forked child gets its own when it reports."""

    reporter: Reporter | None = None


def reporter() -> Reporter:
    """The reporter of this process."""
    if _ProcessReporter.reporter is None:
        task = present()
        sender = Sender(task.reports_url, task.token, merge) if task.reports_url else None
        _ProcessReporter.reporter = Reporter(sender, open_event_files(task, os.environ))
    return _ProcessReporter.reporter


def use_reporter(made: Reporter) -> None:
    """Have ``report`` use this reporter; that of a worker passes reports on to its trial."""
    _ProcessReporter.reporter = made


def report(
    step: int | None = None,
    total: float | None = None,
    *,
    params: Mapping[str, object] | None = None,
    **metrics: SupportsFloat,
) -> None:
    """Report progress and metrics: ``carrel.report(step=120, total=1000, loss=0.31)``.

    What it runs with is said once, at its beginning: ``carrel.report(params={"lr": 0.1})``.

    Returns at once and raises nothing when the scheduler is away. Outside a job nothing is sent.

    Args:
        step: how many steps are done.
        total: how many there will be.
        params: parameters by name, to compare jobs by: texts, numbers, switches.
        metrics: numbers by name; what ``float()`` takes, arrays of one element included.
    """
    reporter().report(step, total, metrics, params)


def latest() -> dict[str, Any]:
    """The last report, with all metrics so far."""
    return dict(reporter().latest)


def flush(seconds: float = 2.0) -> None:
    """Wait until everything reported was sent, at most ``seconds``."""
    if _ProcessReporter.reporter is not None:
        _ProcessReporter.reporter.flush(seconds)


def _end() -> None:
    flush(LAST_SECONDS)
    if _ProcessReporter.reporter is not None:
        _ProcessReporter.reporter.end(process_exit.succeeded())


def _forget() -> None:
    _ProcessReporter.reporter = None


os.register_at_fork(after_in_child=_forget)
atexit.register(_end)
