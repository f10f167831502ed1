"""The engine's end of the fork server, a process with imports done that forks supervisors.

The fork server (``shim.fork_server``) is started with the first task and again whenever it is gone.
Whether a supervisor runs is reported by the supervisor alone, on a pipe of each request:
``AT_WORK`` means yes, a sentence says why not, and an end of file without either proves that no
process is left that could start it, which makes it safe to ask another fork server. The engine
holds the task's lock meanwhile. A fork server that does not answer is killed, so that no start
waits without end.
"""

import contextlib
import logging
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import carrel_scheduler
from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.shim.job import ShimTask
from carrel_scheduler.engines.local.shim.supervisor import AT_WORK

SOURCES: Final = Path(carrel_scheduler.__file__).parent.parent
SHIM: Final = "carrel_scheduler.engines.local.shim"
TRIES: Final = 2
ANSWER_BYTES: Final = 4096
ANSWER_SECONDS: Final = 30.0
EXIT_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


def shim_command(module: str, *descriptors: int) -> list[str]:
    """The command that runs ``main`` of a shim module with descriptors as its arguments.

    It ignores the environment and loads no site-packages.
    """
    path = f"import sys; sys.path.insert(0, {str(SOURCES)!r})"
    code = f"{path}; from {SHIM}.{module} import main; main()"
    return [sys.executable, "-I", "-S", "-c", code, *map(str, descriptors)]


class NoSupervisor(EngineError):  # noqa: N818 - an outcome, like those of the contract
    """The task has no supervisor and will not get one; the message has the cause."""


class ForkServer:
    """Starts supervisors, from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: _ForkServerProcess | None = None
        self._closed = False

    def start(self, job: ShimTask, lock: int, errors: int) -> None:
        """Return once a supervisor runs.

        Args:
            job: the supervisor's.
            lock: descriptor that holds the lock of the task's folder.
            errors: descriptor of the file that is the supervisor's standard error.

        Raises ``NoSupervisor``, or ``OSError`` when the fork server cannot be started.
        """
        memory = job.to_memory()
        try:
            for _ in range(TRIES):
                answer = self._ask(memory, lock, errors)
                if answer == AT_WORK:
                    return
                if answer:
                    raise NoSupervisor(answer.decode(errors="replace"))
                _log.warning("the fork server ended with the start of %s; retrying", job.task_id)
        finally:
            os.close(memory)
        raise NoSupervisor(
            "the process that starts supervisors ends at once; see the service's log"
        )

    def close(self) -> None:
        """Let the fork server end; supervisors go on."""
        with self._guard:
            self._closed = True
            self._end_process()

    def _ask(self, memory: int, lock: int, errors: int) -> bytes:
        """The supervisor's answer; empty when none runs and none will."""
        answers, supervisors_end = os.pipe()
        try:
            try:
                process = self._send([memory, lock, errors, supervisors_end])
            finally:
                os.close(supervisors_end)
            poll = select.poll()
            poll.register(answers, select.POLLIN)
            if not poll.poll(ANSWER_SECONDS * 1000):
                _log.error("the fork server does not answer; it is killed")
                process.kill()  # a supervisor that it has forked answers all the same
            answer = os.read(answers, ANSWER_BYTES)
        finally:
            os.close(answers)
        if not answer:
            with self._guard:
                if self._process is process:
                    self._end_process()
        return answer

    def _send(self, descriptors: list[int]) -> "_ForkServerProcess":
        with self._guard:
            if self._closed:
                raise NoSupervisor("the engine is closed")
            if self._process is not None and not self._process.alive:
                _log.warning("the fork server was gone; starting it again")
                self._end_process()
            if self._process is None:
                self._process = _ForkServerProcess()
            self._process.send(descriptors)
            return self._process

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class _ForkServerProcess:
    """The running fork server; see ``shim.fork_server``."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    shim_command("fork_server", theirs.fileno()),
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
        """Request a supervisor; that the process is gone shows in the end of the answer pipe."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._requests, [b"s"], descriptors)

    def kill(self) -> None:
        """Kill with SIGKILL; requests that it has not read are lost."""
        self._process.kill()

    def close(self) -> None:
        """Let it carry out pending requests and end; kill it if it does not."""
        self._requests.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
