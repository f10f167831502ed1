"""A fake scheduler on a loopback port, and processes that talk to it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carrel.testing import FakeScheduler

TIMEOUT_SECONDS = 180.0
Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    with FakeScheduler({"ada": ["vision"]}, tcp=True) as fake:
        yield fake


@pytest.fixture
def launch(fake: FakeScheduler, tmp_path: Path) -> Iterator[Launch]:
    """Start a Python program in a folder of its own, with a way in as ada."""
    running: list[subprocess.Popen[str]] = []

    def launch(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
        own = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONUNBUFFERED": "1",
            "CARREL_URL": fake.url,
            "CARREL_TOKEN": fake.token("ada"),
            **environment,
        }
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=own,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        running.append(process)
        return process

    yield launch
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds, for a bounded time."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.02)
