"""Starting supervisors: by asking the nursery, a process that has everything loaded and forks them.

The nursery is started with the first task and again whenever it is gone. Whether a supervisor is at
work is told by the supervisor alone, on a pipe of each request: a word says yes, a sentence says
why not, and an end without either says that nobody is left who could start it, which makes it safe
to ask another nursery. The engine holds the task's lock all the while. A nursery that stands still
is killed, so that no start waits for it for ever.
"""

import contextlib
import logging
import os
import select
import socket
import subprocess
import threading
from typing import Final

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.interpreter import shim_command
from carrel_scheduler.engines.local.shim.job import Job
from carrel_scheduler.engines.local.shim.supervisor import AT_WORK

TRIES: Final = 2
WORD_BYTES: Final = 4096
WORD_SECONDS: Final = 30.0
FAREWELL_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class NoSupervisor(EngineError):  # noqa: N818 - an outcome, like those of the contract
    """No supervisor is at work for the task, and none will be; the message says why."""


class Supervisors:
    """Starts supervisors, from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._nursery: _Nursery | None = None
        self._closed = False

    def start(self, job: Job, lock: int, errors: int) -> None:
        """Return once a supervisor is at work.

        Args:
            job: what it is told.
            lock: descriptor that holds the lock of the task's folder.
            errors: descriptor of a file for what goes wrong with it.

        Raises ``NoSupervisor``, or ``OSError`` when not even the nursery can be started.
        """
        memory = job.to_memory()
        try:
            for _ in range(TRIES):
                word = self._ask(memory, lock, errors)
                if word == AT_WORK:
                    return
                if word:
                    raise NoSupervisor(word.decode(errors="replace"))
                _log.warning("nobody was left to supervise %s; starting afresh", job.task_id)
        finally:
            os.close(memory)
        raise NoSupervisor(
            "the process that starts supervisors ends at once; see the service's log"
        )

    def close(self) -> None:
        """Let the nursery end; supervisors go on."""
        with self._guard:
            self._closed = True
            self._dismiss()

    def _ask(self, memory: int, lock: int, errors: int) -> bytes:
        """The word of the supervisor; empty when none is there and none will be."""
        hear, tell = os.pipe()
        try:
            try:
                nursery = self._send([memory, lock, errors, tell])
            finally:
                os.close(tell)
            if not _comes(hear, WORD_SECONDS):
                _log.error("the process that starts supervisors stands still; it is ended")
                nursery.kill()  # a supervisor that it has forked already speaks all the same
            word = os.read(hear, WORD_BYTES)
        finally:
            os.close(hear)
        if not word:
            with self._guard:
                if self._nursery is nursery:
                    self._dismiss()
        return word

    def _send(self, descriptors: list[int]) -> "_Nursery":
        with self._guard:
            if self._closed:
                raise NoSupervisor("the engine is closed")
            if self._nursery is not None and not self._nursery.alive:
                _log.warning("the process that starts supervisors was gone; starting it again")
                self._dismiss()
            if self._nursery is None:
                self._nursery = _Nursery()
            self._nursery.send(descriptors)
            return self._nursery

    def _dismiss(self) -> None:
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None


def _comes(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or an end, within so many seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class _Nursery:
    """The running process; see ``shim.nursery``."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    shim_command("nursery", theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                    env={},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            self._requests.close()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, descriptors: list[int]) -> None:
        """Ask; one that is gone by now is noticed by the silence that follows."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._requests, [b"s"], descriptors)

    def kill(self) -> None:
        """End it now, and forget what it was asked for."""
        self._process.kill()

    def close(self) -> None:
        """What was asked for is still done. One that does not end is ended: it holds no lock."""
        self._requests.close()
        try:
            self._process.wait(FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
