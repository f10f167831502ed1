"""A command beside a running task: same account, same view, same limits, on a terminal.

Started with the terminal as its standard streams and the job's descriptor as its argument.
"""

import fcntl
import os
import sys
import termios

from carrel_scheduler.engines.local.shim import child, linux
from carrel_scheduler.engines.local.shim.job import Job


def main() -> None:
    """Take the terminal, enter the task's surroundings, execute."""
    job = Job.from_memory(int(sys.argv[1]))
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    child.restore_signals()
    try:
        if job.uid >= 0:
            descriptor = os.open(f"/proc/{job.namespace_pid}/ns/mnt", os.O_RDONLY)
            linux.join_namespace(descriptor)
            os.close(descriptor)
        child.become(job)
    except OSError as error:
        _leave(child.NOT_EXECUTABLE, f"task {job.task_id} cannot be joined: {error.strerror}")
    try:
        child.execute(job)
    except FileNotFoundError as error:
        _leave(child.NOT_FOUND, child.describe(error, job))
    except (OSError, ValueError) as error:
        _leave(child.NOT_EXECUTABLE, child.describe(error, job))


def _leave(code: int, words: str) -> None:
    os.write(2, f"{words}\r\n".encode())
    os._exit(code)
