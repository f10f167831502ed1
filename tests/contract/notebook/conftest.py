"""A fake scheduler on loopback, a real JupyterLab as a workspace has it, and a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from carrel.testing import FakeScheduler
from contract.chromium import FLAGS, program
from contract.notebook.lab import Lab, running_lab

TIMEOUT_MS = 60_000
QUOTA = {"gpus": 4, "cpu_millicores": None, "memory_bytes": None}
USE = {
    "gpus_allocated": 5.0, "gpus_borrowed": 1.0, "gpus_waiting": 2.0, "fair_share_gpus": 4.0,
    "cpu_allocated_millicores": 0, "memory_allocated_bytes": 0, "running": 5, "waiting": 2,
}  # fmt: skip


@contextmanager
def scheduler_with_workspace() -> Iterator[FakeScheduler]:
    """Ada's workspace runs in ``vision``."""
    with FakeScheduler(people={"ada": ["vision"]}, tcp=True) as fake:
        fake.project("vision", quota=QUOTA, use=USE)
        fake.submit("vision", "desk", kind="workspace", server_name="")
        fake.run("vision", "desk")
        yield fake


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window."""
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program(), args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def scheduler() -> Iterator[FakeScheduler]:
    with scheduler_with_workspace() as fake:
        yield fake


@pytest.fixture(scope="module")
def lab(scheduler: FakeScheduler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Ada's workspace."""
    with running_lab(scheduler, tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a file."""
    with chromium() as running:
        yield running
