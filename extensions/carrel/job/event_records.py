"""Records of TensorBoard's event files; its package is imported when the first one is made."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

_END: Final = ".end"


class Records:
    """Values as TensorBoard's records, in a new file. Made and used in one thread only.

    Args:
        folder: where it goes.
        end: whether it is only for how a trial ended.
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

    def end(self, succeeded: bool, at: float) -> None:
        """How the trial ended."""
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        status = api_pb2.STATUS_SUCCESS if succeeded else api_pb2.STATUS_FAILURE
        told = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=at)
        value = self._summary.Value(
            tag=metadata.SESSION_END_INFO_TAG,
            metadata=metadata.create_summary_metadata(
                plugin_data_pb2.HParamsPluginData(session_end_info=told)
            ),
            tensor=metadata.NULL_TENSOR,
        )
        self._put(self._event(wall_time=at, summary=self._summary(value=[value])))

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._records.flush()

    def close(self) -> None:
        """Hand it over and open it no more."""
        self._records.close()

    def _put(self, event: Any) -> None:
        self._records.write(event.SerializeToString())


def _plain(value: Any) -> bool | float | str:
    """A value of a kind that HPARAMS knows."""
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


def forget_ends(folder: Path) -> None:
    """Remove how earlier attempts, and processes that were part of a trial, ended."""
    for file in folder.glob(f"events.out.tfevents.*{_END}"):
        file.unlink(missing_ok=True)
