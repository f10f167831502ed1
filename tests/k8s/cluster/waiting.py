"""Waiting for programs that have just been started, with a bound and with the end of their log."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.ports import free_port
from k8s.cluster.plane import Refused

__all__ = ["NotReady", "Process", "free_port", "wait_for"]

READY_SECONDS: Final = 240.0
_PAUSE_SECONDS: Final = 0.1
Process = subprocess.Popen[bytes]


class NotReady(Exception):  # noqa: N818 - an outcome to try again on
    """A program ended, or did not answer in time; the message has the end of its log."""


def wait_for(ready: Callable[[], bool], process: Process, log: Path) -> None:
    """Wait until something holds while a program runs. Raises ``NotReady``."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            if ready():
                return
        except (OSError, Refused):
            pass  # not there yet, or not authorised yet: asked again until the deadline
        if process.poll() is not None or time.monotonic() > deadline:
            how = "ended" if process.poll() is not None else "did not get ready"
            raise NotReady(f"{log.stem} {how}: {_end_of(log)}")
        time.sleep(_PAUSE_SECONDS)


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-20:])
