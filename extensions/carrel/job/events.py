"""Event files: what ``carrel.report`` says, as TensorBoard reads it.

Written by a thread into ``CARREL_EVENTS_DIR``, one file for each process that reports; nothing is
imported before the first report, TensorFlow never. What the thread cannot keep up with is thinned
out, what cannot be written is said once, and neither is felt by the job. The configuration of an
experiment's trial stands at the beginning, so that TensorBoard's HPARAMS compares trials; how it
ended stands in a file of its own, because TensorBoard keeps to the first end that it reads of a
run, and a trial that failed may be tried again.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from carrel.job import ending
from carrel.job.event_records import Records, forget_ends
from carrel.job.task import Task, warn

MOST_WAITING: Final = 10_000
PAUSE_SECONDS: Final = 0.5
Point = tuple[float, int, Mapping[str, float]]
"""When, at which step, values by name."""


class EventFiles:
    """The event file of this process.

    Args:
        folder: where it goes.
        hyperparameters: of the trial that this is; ``None`` for other work.
        trial: a name for it.
    """

    def __init__(
        self, folder: Path, hyperparameters: Mapping[str, Any] | None = None, trial: str = ""
    ) -> None:
        self._folder, self._trial = folder, trial
        self._hyperparameters = hyperparameters
        self._changed = threading.Condition()
        self._waiting: deque[Point] = deque()
        self._steps = 0
        self._writing = self._urgent = self._broken = False
        self._thread: threading.Thread | None = None
        self._records: Records | None = None

    def put(self, at: float, step: int | None, values: Mapping[str, float]) -> None:
        """Take values; returns at once. Without a step they are counted."""
        with self._changed:
            if self._broken or not values:
                return
            self._steps = self._steps + 1 if step is None else step
            if len(self._waiting) >= MOST_WAITING:
                self._waiting = deque(list(self._waiting)[1::2])
            self._waiting.append((at, self._steps, dict(values)))
            if self._thread is None:
                # What the thread imports uses it, which is refused once the process is ending.
                import concurrent.futures.thread  # noqa: F401

                self._thread = threading.Thread(target=self._run, name="carrel-events", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait, at most so long, until everything is on disk."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting and not self._writing, seconds)
            self._urgent = False

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                self._changed.wait_for(lambda: self._urgent, PAUSE_SECONDS)
                points, self._waiting, self._writing = self._waiting, deque(), True
            fine = False
            try:
                fine = self._write(points)
            finally:  # whatever it was, nobody waits for it
                with self._changed:
                    self._writing, self._broken = False, not fine
                    if not fine:
                        self._waiting.clear()
                    self._changed.notify_all()
            if not fine:
                return

    def end(self, succeeded: bool, at: float) -> None:
        """Say how the trial ended; call it last. Other work and what never reported has no end."""
        if self._hyperparameters is None or self._records is None or self._broken:
            return
        _said(lambda: self._write_end(succeeded, at))

    def _write_end(self, succeeded: bool, at: float) -> None:
        forget_ends(self._folder)
        last = Records(self._folder, end=True)
        last.end(succeeded, at)
        last.close()

    def _write(self, points: deque[Point]) -> bool:
        return _said(lambda: self._write_points(points))

    def _write_points(self, points: deque[Point]) -> None:
        if self._records is None:
            self._records = Records(self._folder)
            if self._hyperparameters is not None:
                forget_ends(self._folder)
                self._records.trial(self._hyperparameters, self._trial, points[0][0])
        for at, step, values in points:
            self._records.values(at, step, values)
        self._records.flush()


def _said(write: Callable[[], None]) -> bool:
    """Whether it could be written; else it is said why."""
    try:
        write()
    except ModuleNotFoundError as error:
        warn(f"no event files for TensorBoard: this Python lacks {error.name}.")
        return False
    except OSError as error:
        warn(f"no event files for TensorBoard: {error.filename}: {error.strerror}.")
        return False
    return True


def event_files(task: Task, environ: Mapping[str, str]) -> EventFiles | None:
    """Those of a task that was given a folder for them; ``None`` elsewhere.

    Tasks after the first have a folder of their own inside it.
    """
    root = environ.get("CARREL_EVENTS_DIR")
    if not root:
        return None
    folder = Path(root) / f"task-{task.index}" if task.index else Path(root)
    if not environ.get("CARREL_TRIAL"):
        return EventFiles(folder)
    try:
        parameters = dict(json.loads(environ.get("CARREL_PARAMETERS") or "{}"))
    except (ValueError, TypeError):
        parameters = {}
    ending.own.listen()
    return EventFiles(folder, parameters, f"{task.workload}")
