"""The tutorial from top to bottom: as a job by the clock, and in a workspace in the browser.

Each run belongs to another person, so the names of its jobs are free. On the same machine, a search
from the command line goes on with less when another project wants its GPU back.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
import requests
from playwright.sync_api import Page

import carrel.notebook.demo
from carrel import Client
from carrel.models import Workload
from contract.experiments.running import most_at_once
from e2e.stack import People, Stack, until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(2400)]

TUTORIAL = Path(carrel.notebook.demo.__file__).with_name("carrel-tutorial.ipynb")
CELL_SECONDS = 600
JOBS = {"digits-pair", "digits-search", "digits-api", "digits-curves"}
ACCURACY = 0.9


def tutorial() -> nbformat.NotebookNode:
    """The notebook as it is shipped."""
    found: nbformat.NotebookNode = nbformat.read(TUTORIAL, as_version=4)  # type: ignore[no-untyped-call]
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that jobs can enter: temporary folders and homes are others for each of them."""
    made = Path(tempfile.mkdtemp(dir="/srv" if os.geteuid() == 0 else Path.home()))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def printed(said: str, beginning: str) -> str:
    """The line that begins so, of all that the cells printed."""
    return next(line for line in said.splitlines() if line.startswith(beginning))


def test_it_runs_by_the_clock_as_a_job(team: People, stack: Stack, folder: Path) -> None:
    """As its section 7 says: its cells submit jobs with the token of the run alone.

    What its cells print is what it says at its end.
    """
    shutil.copy(TUTORIAL, folder / "tutorial.ipynb")
    token = team.token("ada")
    ada = stack.client(token)
    words = ("schedule", "nightly", "* * * * *", str(folder / "tutorial.ipynb"), "-p", "vision")
    _carrel(stack, token, *words, "--memory", "1G")

    def runs() -> list[Workload]:
        return ada.list_workloads("vision", kind="notebook", parts=True)

    run = until(lambda: next(iter(runs()), None), seconds=120, why="the clock begins a run")
    ada.suspend("vision", "nightly")
    parents = until(
        lambda: {one.spec.parent for one in ada.list_workloads("vision") if one.name in JOBS},
        seconds=CELL_SECONDS,
        why="it submits a job",
    )
    assert parents == {run.name}
    until(lambda: ada.get_workload("vision", run.name).at_rest, seconds=CELL_SECONDS, why="its end")
    ended = ada.get_workload("vision", run.name)
    assert ended.status.phase == "succeeded", ended.status.reason
    said = "".join(ada.logs("vision", run.name))
    assert float(printed(said, "two workers together: ").rpartition(" ")[2]) > ACCURACY
    assert float(printed(said, "trial ").split(" reads ")[1].split()[0]) > ACCURACY
    answered = printed(said, "answered ").partition("[")[2].strip("]").split(", ")
    right = printed(said, "right ").partition("[")[2].strip("]").split(", ")
    assert sum(a == b for a, b in zip(answered, right, strict=True)) >= 8
    until(
        lambda: not JOBS & {one.name for one in ada.list_workloads(project="vision")},
        seconds=240,
        why="the last cell tidies up",
    )
    ada.delete_workload("vision", "nightly")


def test_it_runs_in_a_workspace(team: People, stack: Stack) -> None:
    page = team.page("grace")
    page.goto(f"{stack.url}/hub/spawn")
    page.locator("form [type=submit]").last.click()
    page.wait_for_url("**/lab**")
    until(lambda: _put(stack, team.token("grace")), seconds=240, why="the notebook is there")
    page.goto(f"{stack.url}/user/grace/lab/tree/tutorial.ipynb")
    page.wait_for_selector("text=Python 3 (ipykernel) | Idle")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    grace = stack.client(team.token("grace"))
    _until_done(grace, "digits-pair")
    _shot(page, team, "%%train digits-pair", "tutorial-train")
    _until_done(grace, "digits-search")
    _shot(page, team, "%%sweep digits-search", "tutorial-sweep")
    page.wait_for_selector(".jp-OutputArea-output >> text=/^answered/", timeout=CELL_SECONDS * 1000)
    _shot(page, team, "%%serve digits-api", "tutorial-serve")
    until(
        lambda: not JOBS & {one.name for one in grace.list_workloads(project="speech")},
        seconds=240,
        why="the last cell tidies up",
    )
    assert page.locator(".jp-OutputArea-output[data-mime-type*=stderr]").count() == 0
    assert page.locator(".jp-RenderedText[data-mime-type*=error]").count() == 0
    page.close()


TRIAL = """
import os, sys, time
import carrel

print("tries", *sys.argv[1:], flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
carrel.report(step=1, accuracy=int(sys.argv[1]) + len(sys.argv[2]) / 10)
"""
SEARCH = ("--parallelism", "3", "--completions", "12", "--sampler", "grid", "-g", "1",
          "--param", "width=1,2,3,4", "--param", "depth=a,bb,ccc",
          "--metric", "accuracy", "--direction", "maximize")  # fmt: skip
SLEEP = ["python", "-c", "import time; time.sleep(600)"]


def test_a_search_goes_on_with_what_is_left(team: People, stack: Stack, folder: Path) -> None:
    """Two GPUs are guaranteed, one is borrowed until its project wants it."""
    (folder / "trial.py").write_text(TRIAL)
    ada, grace = (stack.client(team.token(name)) for name in ("ada", "grace"))
    hold = {"project": "speech", "command": SLEEP, "gpus": 1}
    grace.create_workload({"name": "filler", **hold})
    command = ("submit", "grid", "-p", "vision", "-w", str(folder), *SEARCH, "--")
    _carrel(stack, team.token("ada"), *command, "python", "trial.py", "{width}", "{depth}")

    def trials() -> dict[str, Workload]:
        found = ada.list_workloads(project="vision", kind="trial", parts=True)
        return {one.name: one for one in found}

    def states() -> list[str]:
        return sorted(one.status.phase for one in trials().values())

    until(lambda: states() == ["running"] * 3, seconds=240, why="three trials run")
    grace.create_workload({"name": "claim", **hold})
    until(lambda: states() == ["pending", "running", "running"], seconds=240, why="one gives way")
    claim = until(
        lambda: grace.get_workload("speech", "claim").status.started_at,
        seconds=240,
        why="the claim",
    )
    [evicted] = (one.name for one in trials().values() if one.status.phase == "pending")
    (folder / "go").touch()
    until(
        lambda: ada.get_workload("vision", "grid").status.phase == "succeeded",
        seconds=CELL_SECONDS,
        why="the search ends",
    )
    rows = ada.trials("vision", "grid").items
    tried = {(str(one.parameters["width"]), one.parameters["depth"]) for one in rows}
    assert tried == {(width, depth) for width in "1234" for depth in ("a", "bb", "ccc")}
    assert [one.state for one in rows] == ["completed"] * 12
    again = trials()[evicted]
    assert (again.status.phase, again.status.attempt, again.status.preemptions) == (
        *("succeeded", 1, 1),
    )
    histories = {number: ada.history("vision", name) for number, name in enumerate(trials())}
    assert most_at_once(histories) == 3
    assert most_at_once(histories, since=claim) == 2
    for name in ("filler", "claim"):
        grace.delete_workload("speech", name)


def _carrel(stack: Stack, token: str, *words: str) -> None:
    """The command line as somebody types it."""
    environment = {"CARREL_URL": f"{stack.url}/services/carrel", "CARREL_TOKEN": token}
    subprocess.run(
        [sys.executable, "-m", "carrel.cli", *words], env=os.environ | environment, check=True
    )


def _put(stack: Stack, token: str) -> bool:
    """Lay the tutorial into the workspace, by the contents API of its server.

    Only browsers find names below ``localhost``, so the host is told instead of looked up.
    """
    answer = requests.put(
        f"{stack.url}/user/grace/api/contents/tutorial.ipynb",
        headers={
            "Authorization": f"token {token}",
            "Host": f"grace.{urlsplit(stack.url).netloc}",
        },
        json={
            "type": "notebook",
            "format": "json",
            "content": tutorial(),
        },
        timeout=30,
    )
    return answer.status_code in (200, 201)


def _until_done(client: Client, name: str) -> None:
    """Until a job has succeeded; the last cell may have removed it by then."""
    seen = set()

    def done() -> bool:
        phases = [one.status.phase for one in client.list_workloads("speech") if one.name == name]
        seen.update(phases)
        return phases == ["succeeded"] or (bool(seen) and not phases)

    until(done, seconds=CELL_SECONDS, why=f"{name} is done")


def _shot(page: Page, team: People, source: str, name: str) -> None:
    """A picture of the cell that begins so, with what it shows."""
    cell = page.locator(".jp-CodeCell", has_text=source).first
    cell.scroll_into_view_if_needed()
    team.shot(page, name)
