"""Schedulers of tests, forked by one process that has imported everything, once in a run."""

import atexit
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.forking import ForkServer
from benchmarks.scheduler_process import SchedulerProcess


def forked_scheduler(
    state_dir: Path, hub_url: str, token: str, more: Mapping[str, str] | None = None, **rest: Any
) -> SchedulerProcess:
    """A scheduler to be started, without the seconds that imports take where that can be."""
    # The loader reads this at the start of a program: who is forked does not hear of it.
    fork_server = None if "LD_LIBRARY_PATH" in (more or ()) else _fork_server()
    return SchedulerProcess(state_dir, hub_url, token, more=more, fork_server=fork_server, **rest)


@cache
def _fork_server() -> ForkServer:
    made = ForkServer("benchmarks.forked_schedulers")
    atexit.register(made.close)
    return made
