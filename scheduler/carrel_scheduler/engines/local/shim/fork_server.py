"""Forks supervisors on request, so that the start of a task does not wait for a Python to start.

One per engine, started by it with an empty environment, with one thread and in a session of its
own. It reads no job: what a request brings it hands on to a fork, so nothing of one task is in the
memory that the next one's supervisor inherits. It ends when the engine's end of the socket is
closed, after whatever was asked for before that; its supervisors are nobody's children and stay.

A request is one message with four descriptors: the job, the held lock, standard error, and a pipe
on which the supervisor says that it is at work. Should that pipe end without a word, whoever held
it is gone: nothing was started, and nothing ever will be.
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
    gc.freeze()  # what is here already stays shared with every fork
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        requests.set_inheritable(False)
        while _serve(requests):
            pass


def _serve(requests: socket.socket) -> bool:
    """One request; false once nobody can ask any more."""
    asked, descriptors, _, _ = socket.recv_fds(requests, 1, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    try:
        if len(descriptors) == DESCRIPTORS:
            _begin(requests, *descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return asked != b""


def _begin(requests: socket.socket, job: int, lock: int, errors: int, word: int) -> None:
    """Fork a process that forks the supervisor and ends, so that the kernel adopts that one."""
    try:
        between = os.fork()
    except OSError as error:
        os.write(word, f"no process for a supervisor: {error.strerror}".encode())
        return
    if between:
        os.waitpid(between, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
    except OSError as error:
        os.write(word, f"no process for a supervisor: {error.strerror}".encode())
        os._exit(1)
    _become_supervisor(requests, job, lock, errors, word)


def _become_supervisor(
    requests: socket.socket, job: int, lock: int, errors: int, word: int
) -> NoReturn:
    """Keep what is the supervisor's (the lock above all), let go of the rest, and never return."""
    code = 1
    try:
        requests.close()
        os.dup2(errors, sys.stderr.fileno())
        os.close(errors)
        supervisor.supervise(job, lock, word)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the record has to tell it
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)
