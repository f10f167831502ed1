"""Schedulers that are forked and meet faults: files of a folder switch those on and off.

``clock`` holds seconds by which the scheduler's clock is off; while ``no-watches`` is there the
kernel refuses inotify watches; one that is born while ``no-memory`` is there gets hardly any more.
"""

import ctypes
import errno
import os
import resource
import time
from pathlib import Path
from typing import Any, Final

import inotify_simple
import msgspec

from benchmarks.forking import fork_for_each_line, redirect_output
from benchmarks.scheduler_process import ForkRequest
from carrel_scheduler.service.main import main as serve

SWITCHES: Final = "CARREL_BENCHMARK_FAULTS"
LEFT_BYTES: Final = 4 * 1024 * 1024
_time = time.time


def main() -> None:
    """Fork schedulers."""
    fork_for_each_line(_live)


def _live(line: bytes) -> None:
    told = msgspec.json.decode(line, type=ForkRequest)
    redirect_output(told.log)
    os.environ.clear()
    os.environ |= told.environment
    switches = Path(told.environment[SWITCHES])
    time.time = lambda: _time() + _offset(switches / "clock")
    library = ctypes.CDLL(None, use_errno=True)
    inotify_simple._libc = _Kernel(library, switches / "no-watches")  # noqa: SLF001
    if (switches / "no-memory").exists():
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + LEFT_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    serve()


def _offset(switch: Path) -> float:
    try:
        return float(switch.read_text())
    except (FileNotFoundError, ValueError):  # it is being written
        return 0.0


class _Kernel:
    """The C library, which refuses to watch while the switch is there."""

    def __init__(self, library: Any, switch: Path) -> None:
        self._library, self._switch = library, switch

    def __getattr__(self, name: str) -> Any:
        if name != "inotify_add_watch" or not self._switch.exists():
            return getattr(self._library, name)

        def refuse(*_: Any) -> int:
            ctypes.set_errno(errno.ENOSPC)
            return -1

        return refuse


if __name__ == "__main__":
    main()
