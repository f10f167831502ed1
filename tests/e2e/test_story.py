"""The story of the README in a real browser: borrow, give back, go on, and end the same.

The tests of this module build on each other, in order.
"""

import contextlib
import re
import subprocess
import sys

import pytest
from playwright.sync_api import Error, Page

from carrel import Client
from carrel.errors import ApiError
from e2e.stack import People, Stack, until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(2400)]

FIRST_TRY_MS = 60_000
NOTEBOOK = "carrel-demo.ipynb"
JOBS = ("digits-1", "digits-2", "digits-3", "digits-4")
# The text of the chosen cell, once it is another than before and hears the keyboard.
CHOSEN = """before => {
    const cell = document.querySelector(".jp-Notebook .jp-Cell.jp-mod-active");
    if (!cell?.closest(".jp-Notebook").contains(document.activeElement)) return "";
    const text = cell.querySelector(".jp-MarkdownOutput, .jp-InputArea-editor").textContent;
    return text === before ? "" : text;
}"""


@pytest.fixture(scope="module")
def ada(team: People, stack: Stack) -> Client:
    return team.client("ada")


@pytest.fixture(scope="module")
def grace(team: People, stack: Stack) -> Client:
    return team.client("grace")


def start_workspace(page: Page, stack: Stack, gpus: int) -> None:
    page.goto(f"{stack.url}/hub/spawn")
    page.fill("input[name=gpus]", str(gpus))
    page.locator("form [type=submit]").last.click()


def open_notebook(page: Page, name: str, address: str) -> None:
    """Open a notebook with its kernel; by its address where JupyterLab has not asked for one."""
    idle = page.get_by_text("Python 3 (ipykernel) | Idle")
    page.locator(".jp-DirListing-item", has_text=name).dblclick()
    with contextlib.suppress(Error):
        idle.wait_for(timeout=FIRST_TRY_MS)
        return
    page.goto(address)
    idle.wait_for()


def run_cells(page: Page, count: int) -> None:
    """Run so many cells from the first on, each once the one before has let the next be chosen."""
    page.locator(".jp-Notebook .jp-Cell").first.click()
    for _ in range(count):
        chosen = page.wait_for_function(CHOSEN, arg="").json_value()
        page.keyboard.press("Shift+Enter")
        page.wait_for_function(CHOSEN, arg=chosen)


def phases(client: Client) -> dict[str, str]:
    found = {one.name: one.status.phase for one in client.list_workloads(project="vision")}
    return {name: found[name] for name in JOBS if name in found}


@pytest.fixture(scope="module")
def lab(team: People, stack: Stack) -> Page:
    """JupyterLab in the workspace of the researcher, who signs in on the page."""
    team.sign_in("ada")
    page = team.page("ada")
    start_workspace(page, stack, 0)
    page.wait_for_url("**/lab**")
    return page


def test_the_researcher_of_vision_opens_a_workspace(team: People, lab: Page) -> None:
    lab.wait_for_selector(f".jp-DirListing-item >> text={NOTEBOOK}")
    team.shot(lab, "lab")
    team.page("grace").close()  # signed in before the trainings that she will disturb begin


def test_four_cells_fill_the_gpus_and_two_are_borrowed(
    team: People, stack: Stack, ada: Client, lab: Page
) -> None:
    open_notebook(lab, NOTEBOOK, f"{stack.url}/user/ada/lab/tree/{NOTEBOOK}")
    run_cells(lab, 7)
    until(
        lambda: list(phases(ada).values()) == ["running"] * 4,
        seconds=240,
        why="four trainings run",
    )
    lab.locator(".jp-Notebook .jp-Cell").nth(2).scroll_into_view_if_needed()
    lab.wait_for_selector(".jp-OutputArea-output >> text=Running")
    team.shot(lab, "notebook")
    lab.close()  # what its views draw from now on nobody looks at
    (vision,) = [one for one in ada.list_projects() if one.name == "vision"]
    assert (vision.use.gpus_allocated, vision.use.gpus_borrowed) == (4, 2)
    console = team.page("ada")
    console.goto(f"{stack.url}/services/console/cluster")
    console.wait_for_selector("main svg >> nth=0")
    team.shot(console, "cluster")
    console.close()


def test_a_workspace_of_speech_takes_back_exactly_one(
    team: People, stack: Stack, ada: Client
) -> None:
    until(
        lambda: all(ada.get_workload("vision", name).status.checkpoint for name in JOBS),
        seconds=240,
        every=2.0,
        why="every training has saved a checkpoint",
    )
    borrowed = {name for name in JOBS if ada.get_workload("vision", name).status.borrowed}
    assert len(borrowed) == 2
    page = team.page("grace")
    start_workspace(page, stack, 1)
    starting, lab = page.get_by_text("Starting your workspace"), page.locator(".jp-LabShell")
    starting.or_(lab).first.wait_for()
    team.shot(page, "taking-back")
    page.wait_for_url("**/lab**")
    page.close()
    gave_way = [
        one for one in (ada.get_workload("vision", name) for name in JOBS) if one.status.preemptions
    ]
    assert [one.status.preemptions for one in gave_way] == [1]
    (victim,) = gave_way
    assert victim.name in borrowed
    assert victim.status.last_preemption is not None
    assert victim.status.last_preemption.rule == "reclaim"
    assert victim.status.last_preemption.for_project == "speech"
    past = until(
        lambda: (
            (rows := ada.history("vision", victim.name).transitions)
            and any((row.from_phase, row.to_phase) == ("preempting", "pending") for row in rows)
            and rows
        ),
        seconds=240,
        why="the borrowed training has given way",
    )
    assert any(row.reason and "`speech`" in row.reason.sentence for row in past)
    console = team.page("ada")
    console.goto(f"{stack.url}/services/console/jobs/vision/{victim.name}")
    console.wait_for_selector("h1")
    team.shot(console, "given-way")
    console.close()


def test_it_goes_on_from_its_checkpoint_and_ends_as_if_undisturbed(
    team: People, stack: Stack, ada: Client
) -> None:
    done = until(
        lambda: (found := phases(ada)) and set(found.values()) == {"succeeded"} and found,
        seconds=1200,
        every=2.0,
        why="all four trainings are done",
    )
    assert set(done) == set(JOBS)
    (victim,) = [
        one for one in (ada.get_workload("vision", name) for name in JOBS) if one.status.preemptions
    ]
    seed = victim.name.rpartition("-")[2]
    said = "".join(ada.logs("vision", victim.name))
    undisturbed = subprocess.run(
        [
            *(sys.executable, "-m", "carrel.notebook.demo.train"),
            *(f"--seed={seed}", "--epochs=60", "--seconds-per-epoch=0"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    pattern = r"final accuracy ([0-9.]+)"
    assert re.findall(pattern, said)[-1] == re.findall(pattern, undisturbed)[-1]
    first = re.search(r"epoch +(\d+)", said)
    assert first is not None
    assert int(first.group(1)) > 1, "the last attempt began at its checkpoint"


def test_nobody_sees_into_the_other_project(
    team: People, stack: Stack, ada: Client, grace: Client
) -> None:
    assert {one.project for one in grace.list_workloads()} == {"speech"}
    with pytest.raises(ApiError) as refused:
        grace.get_workload("vision", "digits-1")
    assert refused.value.status in (403, 404)
    with pytest.raises(ApiError):
        "".join(grace.logs("vision", "digits-1"))
    with pytest.raises(ApiError):
        grace.delete_workload("vision", "digits-1")
    token = team.token("grace")
    shell = subprocess.run(
        [sys.executable, "-m", "carrel.cli", "describe", "job", "digits-1", "-p", "vision"],
        env={"CARREL_URL": f"{stack.url}/services/carrel", "CARREL_TOKEN": token, "HOME": "/"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shell.returncode == 1
    assert "digits-1" not in shell.stdout
    page = team.page("grace")
    answer = page.goto(f"{stack.url}/services/console/jobs/vision/digits-1")
    assert answer is not None
    assert answer.status in (403, 404)
    assert "train" not in page.inner_text("main")
    page.close()


def test_the_admin_sets_quota_and_limits_on_the_page(team: People, stack: Stack) -> None:
    page = team.page("admin")
    page.goto(f"{stack.url}/services/console/projects/vision")
    page.wait_for_selector("form")
    team.shot(page, "admin-project")
    admin = team.client("admin")
    admin.update_project("vision", {"quota": {"gpus": 3}, "interactive": {"max_extensions": 2}})
    changed = admin.get_project("vision")
    assert (changed.quota.gpus, changed.interactive.max_extensions) == (3, 2)
    page.close()


def test_after_ctrl_c_everything_is_there_again(team: People, stack: Stack) -> None:
    admin_token = team.token("admin")
    before = stack.client(admin_token)
    going_on = before.create_workload(
        {"name": "long", "project": "speech", "command": ["sleep", "3600"], "gpus": 1}
    )
    until(
        lambda: before.get_workload("speech", "long").status.phase == "running",
        seconds=240,
        why="the job runs",
    )
    pid = before.get_workload("speech", "long").status.tasks[0].pid
    stack.stop()
    stack.start()
    after = stack.client(admin_token)
    found = until(
        lambda: (one := after.get_workload("speech", "long")).status.phase == "running" and one,
        seconds=240,
        why="the job is found again",
    )
    assert (found.uid, found.status.tasks[0].pid) == (going_on.uid, pid)
    assert {one.name for one in after.list_projects()} >= {"vision", "speech"}
    assert after.get_workload("vision", "digits-1").status.phase == "succeeded"
    workspaces = [one for one in after.list_workloads() if one.spec.kind == "workspace"]
    assert {one.status.phase for one in workspaces} == {"running"}
