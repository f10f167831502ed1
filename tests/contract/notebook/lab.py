"""A JupyterLab as a workspace has it, started, asked and stopped by tests."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ports import free_port
from carrel.testing import FakeScheduler
from carrel.workspace import environment, server_arguments

TOKEN = "lab-token"
BASE = "/user/ada/"
PROGRAM = """from jupyterlab.labapp import main
from carrel.workspace.server import run
run(main)"""


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab."""

    url: str
    folder: Path
    log: Path
    runtime: Path
    process: "subprocess.Popen[bytes]"

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Ask its API."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"token {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def kernel_states(self) -> list[str]:
        """The states of all kernels; empty also while one is so new that the server cannot tell.

        Jupyter Server lists a kernel before it has a time of last activity, and fails on that.
        """
        try:
            return [one["execution_state"] for one in self.ask("api/kernels")]
        except urllib.error.HTTPError as error:
            if error.code != 500:
                raise
            return []

    def page(self, path: str = "lab") -> str:
        """The address of a page, signed in."""
        return f"{self.url}{path}?token={TOKEN}&reset"


@contextmanager
def running_lab(scheduler: FakeScheduler, home: Path) -> Iterator[Lab]:
    """A server of ada's with its own home, stopped at the end."""
    folder, log, port = home / "work", home / "lab.log", free_port()
    folder.mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="jupyter-"))
    command = [
        sys.executable, "-c", PROGRAM, "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}",
        f"--ServerApp.root_dir={folder}", f"--ServerApp.base_url={BASE}",
        "--CarrelWorkspace.activity_interval=1", "--CarrelWorkspace.look_interval=0.2",
        *server_arguments(),
    ]  # fmt: skip
    own = {
        "HOME": str(home), "CARREL_URL": scheduler.url, "CARREL_TOKEN": scheduler.token("ada"),
        "JUPYTERHUB_USER": "ada", "JUPYTERHUB_SERVER_NAME": "",
        "JUPYTER_PLATFORM_DIRS": "1", "JUPYTER_RUNTIME_DIR": str(runtime), **environment(),
    }  # fmt: skip
    kept = {key: value for key, value in os.environ.items() if not key.startswith("JUPYTER")}
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=kept | own, cwd=folder, stdout=out, stderr=out)
    running = Lab(f"http://127.0.0.1:{port}{BASE}", folder, log, runtime, process)
    try:
        _await_server(running, process)
        yield running
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(runtime, ignore_errors=True)


def write_notebook(folder: Path, name: str, *cells: str) -> None:
    """A notebook that opens without asking for a kernel."""
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    content = {
        "cells": [
            {"cell_type": "code", "id": f"c{index}", "metadata": {}, "outputs": [],
             "execution_count": None, "source": source}
            for index, source in enumerate(cells)
        ],
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4, "nbformat_minor": 5,
    }  # fmt: skip
    (folder / name).write_text(json.dumps(content))


def _await_server(lab: Lab, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            lab.ask("api/status")
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"JupyterLab did not start:\n{lab.log.read_text()[-3000:]}")
