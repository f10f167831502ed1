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
        if job.namespace_pid and job.uid >= 0:
            descriptor = os.open(f"/proc/{job.namespace_pid}/ns/mnt", os.O_RDONLY)
            linux.join_namespace(descriptor)
            os.close(descriptor)
        child.become(job)
        child.execute(job)
    except (OSError, ValueError) as error:
        os.write(2, f"{child.describe(error, job)}\r\n".encode())
        os._exit(child.NOT_FOUND if isinstance(error, FileNotFoundError) else child.NOT_EXECUTABLE)
