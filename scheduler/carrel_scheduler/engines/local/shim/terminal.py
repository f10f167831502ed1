"""A command beside a running task: same account, same sandbox, same limits, on a terminal.

Started with the terminal as its standard streams and the job's descriptor as its argument. Stays
outside and has a child join, because only a child can be inside the sandbox's process ids.
"""

import fcntl
import os
import signal
import sys
import termios

from carrel_scheduler.engines.local.shim import child, linux
from carrel_scheduler.engines.local.shim.job import Job
from carrel_scheduler.engines.local.shim.sandbox import Sandbox, SandboxError

FORWARDED = (signal.SIGHUP, signal.SIGCONT)


def main() -> None:
    """Fork the command and end as it ends."""
    job = Job.from_memory(int(sys.argv[1]))
    sandbox = None
    if job.uid >= 0:
        try:
            sandbox = Sandbox.find(*job.sandbox)
            sandbox.adopt_children()
        except (SandboxError, OSError) as error:
            _leave(child.NOT_EXECUTABLE, f"task {job.task_id} cannot be joined: {error}")
    alive, parent_alive = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    pid = os.fork()
    if pid == 0:
        os.close(parent_alive)
        _become_the_command(job, sandbox, alive)
    for number in FORWARDED:
        signal.signal(number, lambda got, _: _forward(pid, got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _forward(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it has ended, or has not begun


def _become_the_command(job: Job, sandbox: Sandbox | None, alive: int) -> None:
    try:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        child.restore_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        child.become(job, sandbox)
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.set_blocking(alive, False)
        if _at_end(alive):
            os._exit(child.NOT_EXECUTABLE)
    except OSError as error:
        _leave(child.NOT_EXECUTABLE, f"task {job.task_id} cannot be joined: {error.strerror}")
    try:
        child.execute(job)
    except FileNotFoundError as error:
        _leave(child.NOT_FOUND, child.describe(error, job))
    except (OSError, ValueError) as error:
        _leave(child.NOT_EXECUTABLE, child.describe(error, job))


def _at_end(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False


def _leave(code: int, words: str) -> None:
    os.write(2, f"{words}\r\n".encode())
    os._exit(code)
