"""The demo notebook from its first cell to its last, in a real kernel, as a workspace has it."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

import carrel.notebook.demo
from carrel.notebook.demo.train import train
from carrel.testing import FakeScheduler
from carrel.workspace import environment

NOTEBOOK = Path(carrel.notebook.demo.__file__).with_name("carrel-demo.ipynb")
VICTIM = "digits-3"
EPOCHS = 60


@contextlib.contextmanager
def running_everything(scheduler: FakeScheduler) -> Iterator[None]:
    """Let what is submitted run, print and end, as a scheduler would."""
    over = threading.Event()
    last_lines = {f"digits-{seed}": accuracy(seed) for seed in (1, 2, 3, 4)}

    def serve() -> None:
        while not over.wait(0.1):
            for name, last_line in last_lines.items():
                with contextlib.suppress(Exception):  # not submitted yet, or ended
                    status = scheduler.workload("vision", name)["status"]
                    if status["phase"] == "pending":
                        scheduler.run("vision", name)
                        if name == VICTIM and not status.get("preemptions"):
                            scheduler.preempt("vision", name, for_project="speech")
                            continue
                        scheduler.log("vision", name, f"epoch  {EPOCHS}", last_line)
                        scheduler.finish("vision", name)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    over.set()
    thread.join()


def accuracy(seed: int) -> str:
    """The last line of a training that nobody disturbed."""
    return f"final accuracy {train(seed, EPOCHS, 0.0):.6f}"


def printed(cell: Any) -> str:
    """What a cell shows without JavaScript."""
    texts = [
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
    ]
    return "\n".join(texts)


@pytest.fixture
def executed(scheduler: FakeScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    own = {"CARREL_URL": scheduler.url, "CARREL_TOKEN": scheduler.token("ada"), **environment()}
    own |= {"HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    untyped: Any = nbformat
    notebook = untyped.read(NOTEBOOK, as_version=4)
    client: Any = nbclient.NotebookClient(
        notebook, timeout=90, resources={"metadata": {"path": str(tmp_path)}}
    )
    with running_everything(scheduler):
        client.execute(env=dict(os.environ))
    return {cell.source.splitlines()[0]: cell for cell in notebook.cells}


def test_story(executed: Any, scheduler: FakeScheduler) -> None:
    train = next(cell for line, cell in executed.items() if line.startswith("%%train digits-1"))
    bundle = train.outputs[0]["data"]
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"].startswith("vision/digits-1: ")
    assert "digits-4" in printed(executed["%jobs"])
    assert "4 of 4 guaranteed · 1 borrowed · 2 pending" in printed(executed["%quota"])
    chosen = next(cell for line, cell in executed.items() if line.startswith("preempted = "))
    assert printed(chosen).strip() == "digits-3: preempted 1x"
    waited = printed(executed["%wait digits-1 digits-2 digits-3 digits-4"])
    assert waited.splitlines() == [f"`digits-{seed}`: succeeded" for seed in (1, 2, 3, 4)]
    assert printed(executed["%logs digits-{seed} --tail 1"]).strip() == accuracy(3)
    here = next(cell for line, cell in executed.items() if line.startswith("from carrel.notebook"))
    assert printed(here).strip() == accuracy(3)
    assert printed(executed["%cancel digits-1 digits-2 digits-3 digits-4"]).count("cancelled") == 4
    removed = [path for method, path in scheduler.requests if method == "DELETE"]
    assert removed == [f"/workloads/vision/digits-{number}" for number in (1, 2, 3, 4)]
