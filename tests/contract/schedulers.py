"""Schedulers of tests, forked by one process that has imported everything, once in a run."""

import atexit
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.forking import Forking
from benchmarks.scheduler_process import SchedulerProcess

LOADER = "LD_LIBRARY_PATH"
"""What is read at the start of a program: a process that is forked does not hear of it."""


def forked_scheduler(
    state_dir: Path,
    hub_url: str,
    hub_token: str,
    *,
    more: Mapping[str, str] | None = None,
    **settings: Any,
) -> SchedulerProcess:
    """A scheduler to be started, without the seconds that imports take where that can be."""
    forking = None if more and LOADER in more else _forking()
    return SchedulerProcess(state_dir, hub_url, hub_token, more=more, forking=forking, **settings)


@cache
def _forking() -> Forking:
    made = Forking("benchmarks.forked_schedulers")
    atexit.register(made.close)
    return made
