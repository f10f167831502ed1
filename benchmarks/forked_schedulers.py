"""Schedulers that are forked: ``SchedulerProcess`` for stories with hundreds of starts."""

import os

import msgspec

from benchmarks.forking import fork_for_each_line, say_into
from benchmarks.scheduler_process import Birth
from carrel_scheduler.service.main import main as serve


def main() -> None:
    """Fork schedulers."""
    fork_for_each_line(_live)


def _live(line: bytes) -> None:
    told = msgspec.json.decode(line, type=Birth)
    say_into(told.log)
    os.environ.clear()
    os.environ |= told.environment
    serve()


if __name__ == "__main__":
    main()
