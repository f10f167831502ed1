"""One JupyterLab, scheduler and browser for all tests of this folder."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from carrel.testing import FakeScheduler
from contract.notebook.conftest import chromium, scheduler_with_workspace
from contract.notebook.lab import Lab, running_lab


@pytest.fixture(scope="package")
def scheduler() -> Iterator[FakeScheduler]:
    with scheduler_with_workspace() as fake:
        yield fake


@pytest.fixture(scope="package")
def lab(scheduler: FakeScheduler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running_lab(scheduler, tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running
