"""The story of the README on real pods: a workspace, a training that borrows, gives back, ends.

The tests of this module build on each other, in order.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page

from carrel import Client
from e2e.stack import People, people, until
from k8s.cluster import usual
from k8s.cluster.images.builder import Image
from k8s.cluster.node import Node
from k8s.cluster.plane import ControlPlane
from k8s.cluster_installation import ClusterInstallation
from k8s.ours import Kubectl, kubectl, ours

__all__ = ["kubectl", "ours"]  # fixtures
pytestmark = [
    pytest.mark.enable_socket,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.browser,
    pytest.mark.timeout(900),
]
PEOPLE: Final = {"ada": ["sight"], "grace": ["sound"]}
NOTEBOOK: Final = ".jp-DirListing-item >> text=carrel-demo.ipynb"
eventually: Final = partial(until, seconds=300.0)
UNTIL_TOLD: Final = """
import os, pathlib, time
while not (pathlib.Path(os.environ["CARREL_CHECKPOINT_DIR"]) / "finish").exists():
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def installation(
    ours: ControlPlane,
    node: Node,
    workspace_image: Image,
    trainer_image: Image,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClusterInstallation]:
    folder: Path = tmp_path_factory.mktemp("installation")
    images = (workspace_image.name, trainer_image.name)
    with ExitStack() as around:
        around.enter_context(usual.alone(node))
        around.enter_context(usual.gpus(node, 1))
        yield around.enter_context(
            ClusterInstallation(node, folder, PEOPLE, {"sight": 0, "sound": 1}, images)
        )


@pytest.fixture(scope="module")
def team(installation: ClusterInstallation) -> Iterator[People]:
    shots = Path(os.environ.get("CARREL_SHOTS", installation.folder / "shots"))
    shots.mkdir(parents=True, exist_ok=True)
    known: Any = installation
    known.shots = shots
    with people(known) as everybody:
        yield everybody


@pytest.fixture(scope="module")
def ada(installation: ClusterInstallation, team: People) -> Iterator[Client]:
    with installation.client(team.token("ada")) as client:
        yield client


@pytest.fixture(scope="module")
def grace(installation: ClusterInstallation, team: People) -> Iterator[Client]:
    with installation.client(team.token("grace")) as client:
        yield client


@pytest.fixture(scope="module")
def page(team: People) -> Page:
    """Where ada has JupyterLab open."""
    return team.page("ada")


def test_a_workspace_from_the_browser_is_a_pod_with_jupyterlab(
    installation: ClusterInstallation, team: People, page: Page
) -> None:
    page.goto(f"{installation.url}/hub/spawn")
    page.fill("input[name=gpus]", "0")
    page.locator("form [type=submit]").last.click()
    page.wait_for_url("**/lab**")
    page.wait_for_selector(NOTEBOOK)
    team.shot(page, "cluster-lab")
    (pod,) = _pods(installation, "sight", "workspace")
    assert pod["spec"]["nodeName"] == installation.node.name
    assert pod["spec"]["schedulerName"] == "carrel"
    assert (installation.volume("sight", "home-ada") / "carrel-demo.ipynb").exists()


@pytest.mark.usefixtures("grace")  # she signs in before the training counts its epochs
def test_a_cell_becomes_a_training_in_a_pod_that_reports(
    installation: ClusterInstallation, team: People, page: Page, ada: Client
) -> None:
    page.dblclick(NOTEBOOK)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    page.wait_for_selector("text=Python 3 (ipykernel) | Idle")
    page.locator(".jp-Notebook .jp-Cell").first.click()
    for _ in range(3):
        page.keyboard.press("Shift+Enter")
    training = eventually(lambda: _one(ada, "digits-1", "running"), why="it runs")
    assert training.status.borrowed
    eventually(lambda: _one(ada, "digits-1").status.checkpoint, why="it saved its work")
    eventually(lambda: "accuracy" in _one(ada, "digits-1").status.metrics, why="it reports")
    page.wait_for_selector(".jp-OutputArea-output >> text=Running")
    team.shot(page, "cluster-training")
    page.close()
    (pod,) = _pods(installation, "sight", "training")
    assert pod["metadata"]["annotations"]["carrel.dev/devices"] == "0"


def test_the_guarantee_of_another_project_takes_it_back(
    installation: ClusterInstallation, ada: Client, grace: Client
) -> None:
    uid = _one(ada, "digits-1").uid
    command = ["python", "-c", UNTIL_TOLD]
    grace.create_workload({"name": "urgent", "project": "sound", "command": command, "gpus": 1})
    gave_way = eventually(
        lambda: (one := _one(ada, "digits-1", "pending")) and one.status.preemptions and one,
        why="the borrowed GPU is given back",
    )
    assert gave_way.status.last_preemption.rule == "reclaim"
    assert gave_way.status.last_preemption.for_project == "sound"
    eventually(lambda: _one(grace, "urgent", "running", "sound"), why="sound has its GPU")
    assert any(_checkpoints(installation, "sight", uid).rglob("*"))
    said = "".join(ada.logs("sight", "digits-1", attempt=0))
    assert "epoch   1" in said
    assert "final accuracy" not in said


def test_it_goes_on_also_when_the_scheduler_is_killed(
    installation: ClusterInstallation, ada: Client, grace: Client
) -> None:
    (
        _checkpoints(installation, "sound", _one(grace, "urgent", project="sound").uid) / "finish"
    ).touch()
    eventually(lambda: _one(ada, "digits-1", "running"), why="the GPU is its again")
    installation.stop("scheduler", signal.SIGKILL)
    installation.start("scheduler")
    eventually(installation._scheduler_answers, why="the next scheduler answers")
    training = _one(ada, "digits-1").status
    assert (training.phase, training.attempt, training.failures) == ("running", 1, 0)


def test_an_idle_workspace_is_stopped_and_leaves_its_files(
    installation: ClusterInstallation, team: People
) -> None:
    rule = {"idle_timeout_seconds": 15, "warn_before_seconds": 1, "apply_to_running": True}
    with installation.client(installation.keys.setup) as admin:
        admin.update_project("sight", {"interactive": rule})
    eventually(
        lambda: all(
            one["status"]["phase"] != "Running" for one in _pods(installation, "sight", "workspace")
        ),
        why="nobody uses it",
    )
    assert (installation.volume("sight", "home-ada") / "carrel-demo.ipynb").exists()
    page = team.page("ada")
    eventually(
        lambda: _home_says(page, installation, "Stopped after"), every=2.0, why="the page says why"
    )
    team.shot(page, "cluster-idle")
    page.close()


def test_it_ends_as_if_undisturbed(ada: Client) -> None:
    epoch = re.compile(r"epoch +(\d+)")
    before = epoch.findall("".join(ada.logs("sight", "digits-1", attempt=0)))
    done = eventually(lambda: _one(ada, "digits-1", "succeeded"), every=2.0, why="it is done")
    assert done.status.preemptions == 1
    said = "".join(ada.logs("sight", "digits-1"))
    after = epoch.findall(said)
    assert int(after[0]) == int(before[-1]) + 1, "it heard SIGTERM and saved what it had"
    train = [sys.executable, "-m", "carrel.notebook.demo.train"]
    options = ["--seed=1", "--epochs=60", "--seconds-per-epoch=0"]
    undisturbed = subprocess.run([*train, *options], capture_output=True, text=True, check=True)
    pattern = r"final accuracy ([0-9.]+)"
    assert re.findall(pattern, said)[-1] == re.findall(pattern, undisturbed.stdout)[-1]


def test_a_workspace_starts_by_itself_when_its_turn_comes(
    installation: ClusterInstallation, team: People, grace: Client
) -> None:
    grace.create_workload(_asleep("b2", "sound", gpus=1) | {"preemptible": False})
    eventually(partial(_one, grace, "b2", "running", "sound"), why="b2 runs")
    page = team.page("grace")
    page.goto(f"{installation.url}/hub/spawn")
    page.fill("input[name=gpus]", "1")
    page.locator("form [type=submit]").last.click()
    page.click("text=Put me in the queue")
    page.wait_for_url("**/hub/home")
    page.wait_for_selector("text=in the queue")
    assert not _pods(installation, "sound", "workspace")
    grace.delete_workload("sound", "b2")
    eventually(
        lambda: (
            [one["status"]["phase"] for one in _pods(installation, "sound", "workspace")]
            == ["Running"]
        ),
        why="the Hub was told that it is its turn",
    )
    lab = f"{installation.url}/user/grace/lab"
    eventually(
        lambda: (answer := page.request.get(lab)).ok and answer.url.startswith(lab),
        why="she gets in",
    )
    page.close()
    (pod,) = _pods(installation, "sound", "workspace")
    assert pod["metadata"]["annotations"]["carrel.dev/devices"]


def test_a_drained_node_moves_the_training_and_tells_who_sits_there(
    installation: ClusterInstallation, team: People, grace: Client, kubectl: Kubectl
) -> None:
    if not _pods(installation, "sound", "workspace"):
        page = team.page("grace")
        page.goto(f"{installation.url}/hub/spawn")
        page.fill("input[name=gpus]", "0")
        page.locator("form [type=submit]").last.click()
        page.wait_for_url("**/lab**")
        page.close()
    grace.create_workload(_asleep("night", "sound", gpus=0))
    eventually(partial(_one, grace, "night", "running", "sound"), why="night runs")
    words = ("--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
    kubectl("drain", installation.node.name, "--pod-selector=carrel.dev/task", *words)
    try:
        eventually(partial(_closed_out, grace, "night"), why="night waits for the node")
        night = _one(grace, "night", "pending", "sound").status
        assert (night.attempt, night.failures, night.last_preemption.rule) == (1, 0, "drain")
        workspace = eventually(partial(_workspace_at_rest, grace), why="it is stopped")
        assert workspace.status.phase == "stopped"
        assert "maintenance of its node" in str(workspace.status.reason)
        page = team.page("grace")
        told = "it was preempted by the maintenance of its node"
        eventually(partial(_home_says, page, installation, told), why="the Hub tells who sat there")
        page.close()
    finally:
        kubectl("uncordon", installation.node.name)
    eventually(partial(_one, grace, "night", "running", "sound"), why="night goes on")


def _workspace_at_rest(client: Client) -> Any:
    """Her workspace, once nothing of it runs."""
    (workspace,) = client.list_workloads(project="sound", kind="workspace")
    return workspace if workspace.at_rest else None


def _why(one: Any) -> str:
    """Why it waits, if that is known yet."""
    return "" if one.status.reason is None else str(one.status.reason.sentence)


def _closed_out(client: Client, name: str) -> bool:
    """Whether it waits and was told that no node takes it."""
    one = _one(client, name, "pending", "sound")
    return one is not None and "no new work" in _why(one)


def _home_says(page: Page, installation: ClusterInstallation, words: str) -> bool:
    page.goto(f"{installation.url}/hub/home")
    return words in page.inner_text("body")


def _asleep(name: str, project: str, *, gpus: int) -> dict[str, Any]:
    """Work that does nothing for long."""
    return {
        "name": name,
        "project": project,
        "command": ["python", "-c", "import time; time.sleep(3600)"],
        "gpus": gpus,
        "memory_bytes": 2**28,
        "grace_seconds": 2,
    }


def _checkpoints(installation: ClusterInstallation, project: str, uid: str) -> Path:
    """What a workload keeps."""
    return installation.volume(project, "carrel-checkpoints") / "checkpoints" / uid


def _one(client: Client, name: str, phase: str = "", project: str = "sight") -> Any:
    """A workload, if it is in that phase."""
    found = [one for one in client.list_workloads(project=project) if one.name == name]
    return next((one for one in found if not phase or one.status.phase == phase), None)


def _pods(installation: ClusterInstallation, project: str, kind: str) -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/carrel-{project}/pods?labelSelector=carrel.dev%2Fkind%3D{kind}"
    found: list[dict[str, Any]] = installation.plane.get(path)["items"]
    return found
