"""Schedulers that are forked: ``SchedulerProcess`` for stories with hundreds of starts."""

import os

import msgspec

from benchmarks.forking import fork_for_each_line, redirect_output
from benchmarks.scheduler_process import ForkRequest
from carrel_scheduler.service.main import main as serve


def main() -> None:
    """Fork schedulers."""
    fork_for_each_line(_live)


def _live(line: bytes) -> None:
    told = msgspec.json.decode(line, type=ForkRequest)
    redirect_output(told.log)
    os.environ.clear()
    os.environ |= told.environment
    serve()


if __name__ == "__main__":
    main()
