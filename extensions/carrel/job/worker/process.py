"""The child of a worker as its parent sees it: started when needed, and anew when it is gone.

The output of a trial goes to a file first: what a crashed child had printed is there, and none of
it is mistaken for the next trial's. While a trial runs it is copied to the worker's own log.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import Final

from carrel.job.worker.orders import Order, TrialEnd

LOG_CHARACTERS: Final = 2000
MOST_FILE_BYTES: Final = 2**20
PIECE_BYTES: Final = 2**16


class Process:
    """See the module.

    Args:
        folder: it calls the function of a map, which works there; ``None``: it runs commands.
    """

    def __init__(self, folder: str | None) -> None:
        self._words = [] if folder is None else [folder]
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._output = tempfile.TemporaryFile(mode="ab+", buffering=0)  # noqa: SIM115 - as long as this
        self._copied = self._began = 0
        self._order = Order(-1)

    def start(self, order: Order) -> None:
        """Have a trial run."""
        if self._output.seek(0, os.SEEK_END) > MOST_FILE_BYTES:
            self._output.truncate(0)
        self._began = self._copied = self._output.seek(0, os.SEEK_END)
        self._order = order
        try:
            self._ready().send(order)
        except OSError:  # it ended by itself since the last trial
            self._gone()
            self._ready().send(order)

    def wait(self, seconds: float) -> TrialEnd | None:
        """The end of the trial; ``None``: it runs still after so long."""
        connection = self._ready()
        try:
            found: TrialEnd | None = connection.recv() if connection.poll(seconds) else None
        except (EOFError, OSError):
            found = TrialEnd(self._order.trial, error=self._gone())
        self._copy()
        return found

    def log(self) -> str:
        """The end of the present trial's output."""
        end = self._output.seek(0, os.SEEK_END)
        first = max(self._began, end - 4 * LOG_CHARACTERS)
        content = os.pread(self._output.fileno(), end - first, first)
        return content.decode("utf-8", "replace").replace("\0", "")[-LOG_CHARACTERS:]

    def terminate(self) -> None:
        """Ask the trial to end, as the scheduler asked this task."""
        if self._child is not None:
            self._child.terminate()

    def close(self, seconds: float) -> None:
        """Let the child end, and kill it if it has not after so long."""
        if self._child is not None and self._connection is not None:
            self._connection.close()
            try:
                self._child.wait(seconds)
            except subprocess.TimeoutExpired:
                self._child.kill()
            self._gone()
        self._output.close()

    def _ready(self) -> Connection:
        if self._connection is None:
            ours, theirs = socket.socketpair()
            with theirs:
                self._child = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "carrel.job.worker.child",
                        str(theirs.fileno()),
                        *self._words,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._output,
                    pass_fds=[theirs.fileno()],
                )
            self._connection = Connection(ours.detach())
        return self._connection

    def _gone(self) -> str:
        """Put the child that has ended away; returns how it ended."""
        if self._child is None or self._connection is None:
            return "Its process is gone."
        code = self._child.wait()
        self._connection.close()
        self._child = self._connection = None
        if code >= 0:
            return f"Its process ended with exit code {code}."
        return f"Its process was killed by signal {-code} ({signal.Signals(-code).name})."

    def _copy(self) -> None:
        """Copy what the trial printed to the log of the worker."""
        while piece := os.pread(self._output.fileno(), PIECE_BYTES, self._copied):
            if self._copied == self._began:
                os.write(1, f"--- trial {self._order.trial}\n".encode())
            self._copied += os.write(1, piece)
