"""``python -m carrel.job.worker [--map] -- COMMAND``: see the package."""

import sys

from carrel.job.task import present
from carrel.job.worker.loop import Loop, WorkerConnection
from carrel.job.worker.process import Process

if __name__ == "__main__":
    process = Process(sys.argv[-1] if sys.argv[1:2] == ["--map"] else None)
    sys.exit(Loop(WorkerConnection(present()), process).run())
