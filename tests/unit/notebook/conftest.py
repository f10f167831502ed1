"""A real IPython shell with the magics, talking to a fake scheduler over a Unix socket."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carrel.client import Client
from carrel.magics.base import CarrelMagics, Connection
from carrel.testing import FakeScheduler

QUOTA = {"gpus": 4, "cpu_millicores": None, "memory_bytes": None}
USE = {"gpus_allocated": 5.0, "gpus_borrowed": 1.0, "gpus_waiting": 2.0}


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler(people={"ada": ["vision"], "bob": ["speech"]}) as fake:
        fake.project("vision", quota=QUOTA, use=USE)
        yield fake


@pytest.fixture
def client(scheduler: FakeScheduler) -> Iterator[Client]:
    with Client(scheduler.url, scheduler.token("ada")) as made:
        yield made


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Any:
    os.environ["IPYTHONDIR"] = str(tmp_path_factory.mktemp("ipython"))
    from IPython.testing import globalipapp

    untyped: Any = globalipapp
    made: Any = untyped.start_ipython()
    made.run_line_magic("load_ext", "carrel")
    return made


@pytest.fixture
def ipython(
    shell: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """The shell with an empty namespace, in a folder of its own."""
    monkeypatch.setattr(CarrelMagics, "connection", Connection(lambda: client))
    monkeypatch.chdir(tmp_path)
    shell.reset(new_session=False)
    yield shell
    shell.reset(new_session=False)
