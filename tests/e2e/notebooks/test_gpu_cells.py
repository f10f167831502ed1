"""``%%gpu`` in a kernel without a GPU, on a whole installation with simulated ones."""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from carrel import Client
from e2e.stack import Stack, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SECONDS = 120


class Kernel:
    """A notebook's kernel with the magics, as ada."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.published: dict[str, list[Any]] = {}
        self.manager: Any = KernelManager(transport="ipc", ip=str(folder / "kernel"))
        self.manager.start_kernel(cwd=str(folder), env={**os.environ, **environment})
        self.client: Any = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)
        self.run("%load_ext carrel")

    def begin(self, code: str) -> str:
        """Ask for its execution."""
        return str(self.client.execute(code))

    def read(self, request: str, enough: Callable[[list[Any]], Any] | None = None) -> list[Any]:
        """Contents of what it published, until that is enough or the reply has come."""
        found = self.published.setdefault(request, [])
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and not (enough and enough(found)):
            message = self.client.get_iopub_msg(timeout=SECONDS)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = {"kind": message["header"]["msg_type"], **message["content"]}
            found.append(content)
            if content.get("execution_state") == "idle":
                break
        return found

    def run(self, code: str) -> list[Any]:
        """Execute to the end."""
        return self.read(self.begin(code))

    def text(self, code: str) -> str:
        """What it printed."""
        return text_of(self.run(code))

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)


def text_of(outputs: list[Any]) -> str:
    return "".join(one.get("text", "") for one in outputs if one["kind"] == "stream")


def plain(error: Any) -> str:
    """Its traceback without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))


@pytest.fixture(scope="module")
def ada(stack: Stack) -> Client:
    return stack.client(stack.token("ada"))


@pytest.fixture(scope="module")
def kernel(ada: Client, stack: Stack) -> Iterator[Kernel]:
    folder = Path(tempfile.mkdtemp(dir="/srv" if os.geteuid() == 0 else Path.home()))
    folder.chmod(0o755)
    token = ada.aio.settings.token
    own = {"CARREL_URL": f"{stack.url}/services/carrel", "CARREL_TOKEN": token,
           "HOME": str(folder), "CARREL_PROJECT": "vision"}  # fmt: skip
    running = Kernel(folder, own)
    yield running
    running.stop()
    shutil.rmtree(folder)


def companions(ada: Client) -> list[Any]:
    return [one for one in ada.list_workloads(project="vision") if one.name.startswith("gpu-")]


def released(ada: Client) -> None:
    until(lambda: not companions(ada), seconds=60, why="the GPU is given back")


def test_a_cell_runs_there_as_if_here(kernel: Kernel, ada: Client) -> None:
    kernel.run(
        "import os\nhere = os.getpid()\nnumbers = [1, 2]\ntotal = 10\n"
        "def twice(n):\n    return 2 * n\nimport threading\nlock = threading.Lock()"
    )
    shown = kernel.run(
        "%%gpu\nimport os, sys\nthere = os.getpid()\n"
        "print('on', os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "print('warned', file=sys.stderr)\nnumbers.append(twice(21))\ntotal += 1\n"
        "from IPython.display import HTML, display\ndisplay(HTML('<b>bold</b>'))\n"
        "import threading\npipe = threading.Lock()\n!echo shell $((1 + 1))\nnumbers"
    )
    assert "on 0" in text_of(shown), shown
    assert "warned" in text_of(shown)
    assert "shell 2" in text_of(shown)
    assert "`pipe`" in text_of(shown)  # cannot come back, and that is said
    data = [one["data"] for one in shown if one["kind"] == "display_data"]
    assert "<b>bold</b>" in [one.get("text/html") for one in data]  # a wait is shown before it
    assert data[-1]["text/plain"] == "[1, 2, 42]"
    assert kernel.text("print(numbers, total, here != there)") == "[1, 2, 42] 11 True\n"
    released(ada)


def test_what_it_raises_is_raised_here(kernel: Kernel, ada: Client) -> None:
    shown = kernel.run("%%gpu\nleft = 1\nleft / 0")
    (error,) = [one for one in shown if one["kind"] == "error"]
    assert error["ename"] == "ZeroDivisionError"
    trace = plain(error)
    assert "left / 0" in trace
    assert "companion" not in trace
    assert kernel.text("print(left)") == "1\n"
    refused = kernel.run("%%gpu\nlock.name")
    assert "`lock` cannot go along" in str(refused)
    released(ada)


def test_it_is_kept_and_ends_with_the_kernel(kernel: Kernel, ada: Client) -> None:
    kernel.run("%%gpu --keep 60\nimport os\nfirst = os.getpid()")
    (kept,) = companions(ada)
    kernel.run("%%gpu --keep 60\nimport os\nsecond = os.getpid()")
    assert kernel.text("print(first == second)") == "True\n"
    assert [one.name for one in companions(ada)] == [kept.name]
    kernel.manager.restart_kernel(now=False)
    kernel.client.wait_for_ready(timeout=SECONDS)
    kernel.run("%load_ext carrel")
    released(ada)
    kernel.run("%%gpu --keep 1\n1")
    released(ada)


def test_an_interrupt_reaches_it(kernel: Kernel, ada: Client) -> None:
    cell = kernel.begin(
        "%%gpu\nimport time\nprint('begun')\nn = 0\nwhile n >= 0:\n    n += 1\n    time.sleep(0.1)"
    )
    kernel.read(cell, lambda found: "begun" in text_of(found))
    kernel.manager.interrupt_kernel()
    (error,) = [one for one in kernel.read(cell) if one["kind"] == "error"]
    assert error["ename"] == "KeyboardInterrupt"
    assert "time.sleep(0.1)" in plain(error)
    assert kernel.text("print(n > 0)") == "True\n"
    released(ada)


def test_waiting_and_the_loss_of_the_gpu_are_told(kernel: Kernel, ada: Client) -> None:
    ada.create_workload(
        {"project": "vision", "kind": "training", "name": "holder", "gpus": 1,
         "command": ["sleep", "600"]}
    )  # fmt: skip
    until(lambda: ada.get_workload("vision", "holder").status.phase == "running", seconds=60)
    cell = kernel.begin("%%gpu -g 4\nimport time\nprint('begun')\ntime.sleep(600)")
    view = "application/vnd.jupyter.widget-view+json"
    kernel.read(cell, lambda found: any(view in one.get("data", {}) for one in found))
    ada.delete_workload("vision", "holder")
    kernel.read(cell, lambda found: "begun" in text_of(found))
    (companion,) = companions(ada)
    ada.suspend("vision", companion.name)
    assert "nothing of the cell came back" in text_of(kernel.read(cell))
    released(ada)
