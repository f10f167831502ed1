"""Event files: what ``carrel.report`` says, as TensorBoard reads it.

Written by a thread into ``CARREL_EVENTS_DIR``, one file for each process that reports; nothing is
imported before the first report, TensorFlow never. What the thread cannot keep up with is thinned
out, what cannot be written is said once, and neither is felt by the job. The configuration of an
experiment's trial stands at the beginning, so that TensorBoard's HPARAMS compares trials.
"""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

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
        self._encoder: _Encoder | None = None

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
            fine = self._write(points)
            with self._changed:
                self._writing = False
                if not fine:
                    self._broken = True
                    self._waiting.clear()
                self._changed.notify_all()
                if self._broken:
                    return

    def _write(self, points: deque[Point]) -> bool:
        try:
            if self._encoder is None:
                self._encoder = _Encoder(self._folder)
                if self._hyperparameters is not None:
                    self._encoder.trial(self._hyperparameters, self._trial, points[0][0])
            for at, step, values in points:
                self._encoder.values(at, step, values)
            self._encoder.flush()
        except ModuleNotFoundError as error:
            warn(f"no event files for TensorBoard: this Python lacks {error.name}.")
            return False
        except OSError as error:
            warn(f"no event files for TensorBoard: {error.filename}: {error.strerror}.")
            return False
        return True


class _Encoder:
    """Values as TensorBoard's records. Made and used in the writing thread only."""

    def __init__(self, folder: Path) -> None:
        import socket

        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file: IO[bytes] = (folder / name).open("xb")
        # Members of the project read it, whatever mask the job sets.
        os.fchmod(self._file.fileno(), 0o644)
        self._records = RecordWriter(self._file)
        self._put(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def values(self, at: float, step: int, values: Mapping[str, float]) -> None:
        """Numbers of one step."""
        found = [
            self._summary.Value(tag=name, simple_value=number) for name, number in values.items()
        ]
        self._put(self._event(wall_time=at, step=step, summary=self._summary(value=found)))

    def trial(self, parameters: Mapping[str, Any], name: str, at: float) -> None:
        """The configuration that this run has."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        plain = {key: _plain(value) for key, value in parameters.items()}
        summary = hparams_pb(plain, trial_id=name, start_time_secs=at)
        self._put(self._event(wall_time=at, summary=summary))

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._records.flush()

    def _put(self, event: Any) -> None:
        self._records.write(event.SerializeToString())


def _plain(value: Any) -> bool | float | str:
    """A value of a kind that HPARAMS knows."""
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


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
    return EventFiles(folder, parameters, f"{task.workload}")
