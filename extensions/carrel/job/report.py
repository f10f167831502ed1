"""``carrel.report``: say how the training is going, from a thread that never gets in its way.

What is reported between two sends is merged, so at most two requests a second leave. A server that
does not answer is tried again with growing pauses; the training hears of it once, on stderr.
"""

import atexit
import math
import os
import time
from collections.abc import Mapping
from typing import Any, Final, SupportsFloat

from carrel.job import ending
from carrel.job.events import EventFiles, event_files
from carrel.job.sender import Sender
from carrel.job.task import present, warn

MOST_NAMES: Final = 200
EVENTS_SECONDS: Final = 10.0
"""Longest wait for event files: no network is waited for, only what imports and the disk take."""
# What is still to be sent when the process ends may be what a trial was for.
LAST_SECONDS: Final = 60.0 if "CARREL_TRIAL" in os.environ else 2.0


class Reporter:
    """Collects what is reported and hands it on; remembers the latest values.

    ``sender`` tells the scheduler, ``events`` writes for TensorBoard.
    """

    def __init__(self, sender: Sender | None, events: EventFiles | None = None) -> None:
        self.latest: dict[str, Any] = {}
        self._sender, self._events = sender, events
        self._warned: set[str] = set()

    def report(
        self, step: int | None, total: float | None, metrics: Mapping[str, SupportsFloat]
    ) -> None:
        """Take values; see ``carrel.report``."""
        places = {"step": step, "total": total}
        known = self._numbers({name: at for name, at in places.items() if at is not None})
        body: dict[str, Any] = {"metrics": self._numbers(metrics)}
        if "step" in known:
            body |= {"step": int(known["step"]), "done": known["step"]}
        if "total" in known:
            body["total"] = known["total"]
        if self._events is not None:
            self._events.put(time.time(), body.get("step"), body["metrics"])
        self.put(body)

    def record(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """Write values for TensorBoard; the scheduler hears of them in another way."""
        if self._events is not None:
            self._events.put(time.time(), step, metrics)

    def put(self, body: dict[str, Any]) -> None:
        """Take the fields of a report."""
        body = {**body, "at": time.time()}
        self.latest = merge(self.latest, body)
        if self._sender is not None:
            self._sender.put(body)

    def flush(self, seconds: float = 2.0) -> None:
        """Wait, at most so long, until everything was sent."""
        if self._sender is not None:
            self._sender.flush(seconds)
        if self._events is not None:
            self._events.flush(max(seconds, EVENTS_SECONDS))

    def end(self, succeeded: bool | None) -> None:
        """Say, last of all, how the work ended; ``None``: it goes on later."""
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
    """Two reports as one: newer fields win, metrics come together."""
    metrics = {**old.get("metrics", {}), **new.get("metrics", {})}
    return {**old, **new, **({"metrics": metrics} if metrics else {})}


class _Own:
    """The reporter of this process; a forked child gets its own when it reports."""

    reporter: Reporter | None = None


def reporter() -> Reporter:
    """The reporter of this process."""
    if _Own.reporter is None:
        task = present()
        sender = Sender(task.reports_to, task.token, merge) if task.reports_to else None
        _Own.reporter = Reporter(sender, event_files(task, os.environ))
    return _Own.reporter


def report(step: int | None = None, total: float | None = None, **metrics: SupportsFloat) -> None:
    """Say how far the job is and how well: ``carrel.report(step=120, total=1000, loss=0.31)``.

    Returns at once and never raises for what others do wrong. Outside a job it only remembers.

    Args:
        step: how many steps are done.
        total: how many there will be.
        metrics: numbers by name; what ``float()`` takes, arrays of one element included.
    """
    reporter().report(step, total, metrics)


def latest() -> dict[str, Any]:
    """What was reported last, with all metrics so far."""
    return dict(reporter().latest)


def flush(seconds: float = 2.0) -> None:
    """Wait, at most so long, until everything reported was sent."""
    if _Own.reporter is not None:
        _Own.reporter.flush(seconds)


def _end() -> None:
    flush(LAST_SECONDS)
    if _Own.reporter is not None:
        _Own.reporter.end(ending.own.succeeded())


def _forget() -> None:
    _Own.reporter = None


os.register_at_fork(after_in_child=_forget)
atexit.register(_end)
