"""Event files: what a job reports, as TensorBoard reads it.

A thread writes them into ``CARREL_EVENTS_DIR``, one file for each process that reports. The package
of TensorBoard is imported with the first report, TensorFlow never. Points that the thread cannot
keep up with are thinned out; a failure to write is logged once and never raised in the job.

The configuration of an experiment's trial stands at the beginning, so that TensorBoard's HPARAMS
compares trials. How the trial ended stands in a file of its own, because TensorBoard keeps to the
first end that it reads of a run, and a failed trial may be retried.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from carrel.job.background import BackgroundOutcome, BackgroundWork
from carrel.job.task import Task, process_exit, warn

_END: Final = ".end"


class EventFile:
    """An event file. Made and used in one thread only.

    Args:
        folder: where the file is made.
        end: whether the file holds nothing but how a trial ended.
    """

    def __init__(self, folder: Path, *, end: bool = False) -> None:
        import socket

        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        name += _END if end else ""
        self._file: IO[bytes] = (folder / name).open("xb")
        # Members of the project read it, whatever mask the job sets.
        os.fchmod(self._file.fileno(), 0o644)
        self._records = RecordWriter(self._file)
        self._put(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def values(self, at: float, step: int, values: Mapping[str, float]) -> None:
        """Write the metrics of one step."""
        found = [
            self._summary.Value(tag=name, simple_value=number) for name, number in values.items()
        ]
        self._put(self._event(wall_time=at, step=step, summary=self._summary(value=found)))

    def trial(self, parameters: Mapping[str, Any], name: str, at: float) -> None:
        """Write the configuration of a trial."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        plain = {key: _plain(value) for key, value in parameters.items()}
        summary = hparams_pb(plain, trial_id=name, start_time_secs=at)
        self._put(self._event(wall_time=at, summary=summary))

    def end(self, succeeded: bool, at: float) -> None:
        """Write how the trial ended."""
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        status = api_pb2.STATUS_SUCCESS if succeeded else api_pb2.STATUS_FAILURE
        ended = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=at)
        value = self._summary.Value(
            tag=metadata.SESSION_END_INFO_TAG,
            metadata=metadata.create_summary_metadata(
                plugin_data_pb2.HParamsPluginData(session_end_info=ended)
            ),
            tensor=metadata.NULL_TENSOR,
        )
        self._put(self._event(wall_time=at, summary=self._summary(value=[value])))

    def flush(self) -> None:
        """Write buffered records to the file."""
        self._records.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._records.close()

    def _put(self, event: Any) -> None:
        self._records.write(event.SerializeToString())


def _plain(value: Any) -> bool | float | str:
    """The value as a type of HPARAMS."""
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


def remove_ends(folder: Path) -> None:
    """Remove the end files of earlier attempts and of other processes of the trial."""
    for file in folder.glob(f"events.out.tfevents.*{_END}"):
        file.unlink(missing_ok=True)


MOST_WAITING: Final = 10_000
PAUSE_SECONDS: Final = 0.5
Point = tuple[float, int, Mapping[str, float]]
"""The time, the step, and values by name."""


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
        # What the thread imports uses it, which is refused once the process is ending.
        import concurrent.futures.thread  # noqa: F401

        self._counting, self._steps = threading.Lock(), 0
        self._records: EventFile | None = None
        self._work: BackgroundWork[list[Point]] = BackgroundWork(
            "carrel-events", _joined, self._write, PAUSE_SECONDS
        )

    def put(self, at: float, step: int | None, values: Mapping[str, float]) -> None:
        """Queue metrics; returns at once. Without a step, points are counted."""
        if not values:
            return
        with self._counting:
            self._steps = self._steps + 1 if step is None else step
            self._work.put([(at, self._steps, dict(values))])

    def flush(self, seconds: float) -> None:
        """Wait until the queue is written, at most ``seconds``."""
        self._work.flush(seconds)

    def end(self, succeeded: bool, at: float) -> None:
        """Write how the trial ended, after all else; nothing for other work, or without reports."""
        if self._hyperparameters is None or self._records is None or self._work.gave_up:
            return
        _written(lambda: self._write_end(succeeded, at))

    def _write_end(self, succeeded: bool, at: float) -> None:
        remove_ends(self._folder)
        last = EventFile(self._folder, end=True)
        last.end(succeeded, at)
        last.close()

    def _write(self, points: list[Point]) -> BackgroundOutcome:
        fine = _written(lambda: self._write_points(points))
        return BackgroundOutcome.DONE if fine else BackgroundOutcome.NEVER

    def _write_points(self, points: list[Point]) -> None:
        if self._records is None:
            self._records = EventFile(self._folder)
            if self._hyperparameters is not None:
                remove_ends(self._folder)
                self._records.trial(self._hyperparameters, self._trial, points[0][0])
        for at, step, values in points:
            self._records.values(at, step, values)
        self._records.flush()


def _joined(points: list[Point], more: list[Point]) -> list[Point]:
    if len(points) >= MOST_WAITING:
        del points[::2]
    points += more
    return points


def _written(write: Callable[[], None]) -> bool:
    """Whether ``write`` succeeded; a failure is logged."""
    try:
        write()
    except ModuleNotFoundError as error:
        warn(f"no event files for TensorBoard: this Python lacks {error.name}.")
        return False
    except OSError as error:
        warn(f"no event files for TensorBoard: {error.filename}: {error.strerror}.")
        return False
    return True


def write_trial(environ: Mapping[str, str], points: Sequence[Point], *, succeeded: bool) -> None:
    """Write the event files of a trial that has ended, where its worker has a folder for them."""
    root = environ.get("CARREL_EVENTS_DIR")
    if not root:
        return
    parameters = json.loads(environ.get("CARREL_PARAMETERS") or "{}")
    name = f"{environ.get('CARREL_EXPERIMENT')}-{environ.get('CARREL_TRIAL')}"

    def write() -> None:
        records = EventFile(Path(root))
        records.trial(parameters, name, points[0][0])
        for at, step, values in points:
            records.values(at, step, values)
        records.close()
        last = EventFile(Path(root), end=True)
        last.end(succeeded, time.time())
        last.close()

    _written(write)


def open_event_files(task: Task, environ: Mapping[str, str]) -> EventFiles | None:
    """The event files of a task; ``None`` where there is no folder for them.

    Tasks after the first have a subfolder each.
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
    process_exit.watch()
    return EventFiles(folder, parameters, f"{task.workload}")
