"""The tutorial from top to bottom: by nbclient on the machine, and in a workspace in the browser.

Each run belongs to another person, so the names of its jobs are free.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import Page

from carrel import Client
from e2e.stack import People, Stack, until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"
CELL_SECONDS = 300
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


def printed(notebook: nbformat.NotebookNode, beginning: str) -> str:
    """The line that begins so, of all that the cells printed."""
    lines = [
        line
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for line in output.get("text", "").splitlines()
    ]
    return str(next(line for line in lines if line.startswith(beginning)))


def test_it_runs_from_top_to_bottom(team: People, stack: Stack, folder: Path) -> None:
    notebook = tutorial()
    home = folder / "home"
    home.mkdir()
    token = team.token("ada")
    NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    ).execute(
        env={
            **os.environ,
            "HOME": str(home),
            "CARREL_URL": f"{stack.url}/services/carrel",
            "CARREL_TOKEN": token,
        }
    )
    assert float(printed(notebook, "two workers together: ").rpartition(" ")[2]) > ACCURACY
    assert float(printed(notebook, "trial ").split(" reads ")[1].split()[0]) > ACCURACY
    answered = printed(notebook, "answered ").partition("[")[2].strip("]").split(", ")
    right = printed(notebook, "right ").partition("[")[2].strip("]").split(", ")
    assert sum(a == b for a, b in zip(answered, right, strict=True)) >= 8
    ada = stack.client(token)
    until(
        lambda: not JOBS & {one.name for one in ada.list_workloads(project="vision")},
        seconds=60,
        why="the last cell tidies up",
    )


def test_it_runs_in_a_workspace(team: People, stack: Stack) -> None:
    page = team.page("grace")
    page.goto(f"{stack.url}/hub/spawn")
    page.locator("form [type=submit]").last.click()
    page.wait_for_url("**/lab**")
    until(lambda: _put(page, stack, team.token("grace")), seconds=60, why="the notebook is there")
    page.goto(f"{stack.url}/user/grace/lab/tree/tutorial.ipynb")
    page.wait_for_selector("text=Python 3 (ipykernel) | Idle")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    grace = stack.client(team.token("grace"))
    until(lambda: _phase(grace, "digits-pair") == "succeeded", seconds=300, why="two workers end")
    _shot(page, team, "%%train digits-pair", "tutorial-train")
    until(lambda: _phase(grace, "digits-search") == "succeeded", seconds=300, why="the sweep ends")
    _shot(page, team, "%%sweep digits-search", "tutorial-sweep")
    page.wait_for_selector(".jp-OutputArea-output >> text=/^answered/", timeout=300_000)
    _shot(page, team, "%%serve digits-api", "tutorial-serve")
    until(
        lambda: not JOBS & {one.name for one in grace.list_workloads(project="speech")},
        seconds=120,
        why="the last cell tidies up",
    )
    assert page.locator(".jp-OutputArea-output[data-mime-type*=stderr]").count() == 0
    assert page.locator(".jp-RenderedText[data-mime-type*=error]").count() == 0


def _put(page: Page, stack: Stack, token: str) -> bool:
    """Lay the tutorial into the workspace, by the contents API of its server."""
    answer = page.request.put(
        f"{stack.url}/user/grace/api/contents/tutorial.ipynb",
        headers={"Authorization": f"token {token}"},
        data={
            "type": "notebook",
            "format": "json",
            "content": tutorial(),
        },
    )
    return answer.status in (200, 201)


def _phase(client: Client, name: str) -> str:
    found = [one for one in client.list_workloads(project="speech") if one.name == name]
    return found[0].status.phase if found else ""


def _shot(page: Page, team: People, source: str, name: str) -> None:
    """A picture of the cell that begins so, with what it shows."""
    cell = page.locator(".jp-CodeCell", has_text=source).first
    cell.scroll_into_view_if_needed()
    team.shot(page, name)
