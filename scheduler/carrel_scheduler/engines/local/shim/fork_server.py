"""The fork server: forks supervisors, so that the start of a task does not wait for a new Python.

One per engine, started by it with an empty environment, with one thread and in a session of its
own. It reads no job but passes the descriptor on to a fork, so the memory that a supervisor
inherits holds nothing of other tasks. It ends when the engine's end of the socket is closed, after
the requests made before that; its supervisors are adopted by init and stay.

A request is one message with four descriptors: the job, the held lock, standard error, and a pipe
for the supervisor's answer. An end of file on that pipe without an answer proves that no process is
left that could start the supervisor.
"""

import gc
import os
import signal
import socket
import sys
from typing import NoReturn

from carrel_scheduler.engines.local.shim import supervisor

DESCRIPTORS = 4


def main() -> None:
    """Entry: the descriptor of the socket is the argument."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    gc.freeze()  # existing objects stay shared with every fork
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        requests.set_inheritable(False)
        while _serve(requests):
            pass


def _serve(requests: socket.socket) -> bool:
    """Serve one request; false once the engine has closed the socket."""
    asked, descriptors, _, _ = socket.recv_fds(requests, 1, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    try:
        if len(descriptors) == DESCRIPTORS:
            _begin(requests, *descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return asked != b""


def _begin(requests: socket.socket, job: int, lock: int, errors: int, answer: int) -> None:
    """Fork a process that forks the supervisor and ends, so that init adopts that one."""
    try:
        between = os.fork()
    except OSError as error:
        os.write(answer, f"no process for a supervisor: {error.strerror}".encode())
        return
    if between:
        os.waitpid(between, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
    except OSError as error:
        os.write(answer, f"no process for a supervisor: {error.strerror}".encode())
        os._exit(1)
    _become_supervisor(requests, job, lock, errors, answer)


def _become_supervisor(
    requests: socket.socket, job: int, lock: int, errors: int, answer: int
) -> NoReturn:
    """Run the supervisor with its descriptors only; never returns."""
    code = 1
    try:
        requests.close()
        os.dup2(errors, sys.stderr.fileno())
        os.close(errors)
        supervisor.supervise(job, lock, answer)
        code = 0
    except BaseException:  # noqa: BLE001 - it goes to the task's supervisor.log
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)
