"""docs/backup.md on a cluster: what its steps save comes back after all of it was removed.

Hub and scheduler run here, with their state folders on this machine; objects and pods are real.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from carrel import Client
from e2e.stack import People, people, until
from k8s.access import SYSTEM
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
PROJECT: Final = "archive"
NAMESPACE: Final = f"carrel-{PROJECT}"
KEPT_BY_SERVER: Final = ("uid", "resourceVersion", "generation", "managedFields")
UNTIL_TOLD: Final = """
import os, pathlib, time
while not (pathlib.Path(os.environ["CARREL_CHECKPOINT_DIR"]) / "finish").exists():
    time.sleep(0.05)
"""
eventually: Final = partial(until, seconds=300.0)


@pytest.fixture
def installation(
    ours: ControlPlane, node: Node, base_image: Image, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterInstallation]:
    """An installation with one project and a node of one GPU."""
    folder = tmp_path_factory.mktemp("backup")
    images = (base_image.name, base_image.name)
    with ExitStack() as around:
        around.enter_context(usual.alone(node))
        around.enter_context(usual.gpus(node, 1))
        yield around.enter_context(
            ClusterInstallation(node, folder, {"ada": [PROJECT]}, {PROJECT: 1}, images)
        )


@pytest.fixture
def team(installation: ClusterInstallation) -> Iterator[People]:
    known: Any = installation
    known.shots = Path(os.environ.get("CARREL_SHOTS", installation.folder / "shots"))
    known.shots.mkdir(parents=True, exist_ok=True)
    with people(known) as everybody:
        yield everybody


def test_what_was_saved_comes_back(
    installation: ClusterInstallation, team: People, kubectl: Kubectl, tmp_path: Path
) -> None:
    with installation.client(team.token("ada")) as ada:
        for name in ("first", "second"):
            command = ["python3", "-c", UNTIL_TOLD]
            fields = {"name": name, "project": PROJECT, "gpus": 1, "cpu_millicores": 50}
            ada.create_workload({**fields, "command": command, "grace_seconds": 1})
        eventually(lambda: _phase(ada, "first") == "running", why="it runs")
        assert _phase(ada, "second") == "pending"
        before = {name: ada.get_workload(PROJECT, name) for name in ("first", "second")}
        history = ada.history(PROJECT, "second")
        quota = ada.get_project(PROJECT).quota

        saved = [_exported(kubectl, "projects.carrel.dev", PROJECT)]
        saved += _exported(kubectl, "trainings.carrel.dev", "-n", NAMESPACE)["items"]
        keys = ("carrel-task-key", "carrel-ledger-keys")
        secrets = [_exported(kubectl, "secret", name, "-n", SYSTEM) for name in keys]
        secrets += _exported(kubectl, "secret", "-n", NAMESPACE)["items"]
        ledger, hub = tmp_path / "ledger.backup", tmp_path / "hub.backup"
        states = {ledger: installation.folder / "scheduler", hub: installation.settings.state_dir}
        for file, state in states.items():
            _carrel("backup", str(file), "--state-dir", str(state))

        for part in ("scheduler", "hub"):
            installation.stop(part)
        pods = _exported(kubectl, "pods", "-n", NAMESPACE)["items"]
        for one in [*secrets, *saved, *pods]:
            _remove(kubectl, one)
        for state in states.values():
            shutil.rmtree(state)
        assert "first" not in kubectl("get", "trainings.carrel.dev,pods", "-n", NAMESPACE)

        for one in [*secrets, *saved]:
            _bring_back(kubectl, one)
        for file, state in states.items():
            _carrel("restore", str(file), "--force", "--state-dir", str(state))
        for part in ("hub", "scheduler"):
            installation.start(part)
        eventually(installation._hub_answers, why="the Hub answers")
        eventually(installation._scheduler_answers, why="the scheduler answers")

        # Her token of before: the Hub knows it, and the scheduler asks the Hub.
        after = {name: ada.get_workload(PROJECT, name) for name in before}
        assert [one.uid for one in after.values()] == [one.uid for one in before.values()]
        assert ada.get_project(PROJECT).quota == quota
        key = _exported(kubectl, "secret", "carrel-task-key", "-n", SYSTEM)
        assert key["data"] == secrets[0]["data"]
        known = [one.at for one in history.transitions]
        assert [one.at for one in ada.history(PROJECT, "second").transitions][: len(known)] == known
        eventually(lambda: _phase(ada, "first") == "running", why="what ran runs again")
        _finish(installation, before["first"].uid)
        eventually(lambda: _phase(ada, "first") == "succeeded", why="it ends")
        eventually(lambda: _phase(ada, "second") == "running", why="what waited starts")
        _finish(installation, before["second"].uid)
        eventually(lambda: _phase(ada, "second") == "succeeded", why="it ends")


def _phase(client: Client, name: str) -> str:
    return client.get_workload(PROJECT, name).status.phase


def _carrel(*words: str) -> None:
    command = [sys.executable, "-m", "carrel.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _exported(kubectl: Kubectl, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", *what, "-o", "json"))
    return found


def _named(one: dict[str, Any]) -> list[str]:
    meta = one["metadata"]
    kind, group = one["kind"].lower(), one["apiVersion"].rpartition("/")[0]
    where = ["-n", meta["namespace"]] if "namespace" in meta else []
    return [f"{kind}.{group}" if group else kind, meta["name"], *where]


def _remove(kubectl: Kubectl, one: dict[str, Any]) -> None:
    """Delete an object; nothing waits for a controller that is gone."""
    words = _named(one)
    if one["metadata"].get("finalizers"):
        kubectl("patch", *words, "--type=merge", '-p={"metadata":{"finalizers":null}}')
    kubectl("delete", *words, "--ignore-not-found")


def _bring_back(kubectl: Kubectl, one: dict[str, Any]) -> None:
    """As tools for backups do: a new object, then its status."""
    meta = {key: value for key, value in one["metadata"].items() if key not in KEPT_BY_SERVER}
    meta.pop("ownerReferences", None)
    body = {**one, "metadata": meta}
    kubectl("create", "-f", "-", given=json.dumps(body))
    if "status" in one:
        kubectl("replace", "--subresource=status", "-f", "-", given=json.dumps(body))


def _finish(installation: ClusterInstallation, uid: str) -> None:
    folder = installation.volume(PROJECT, "carrel-checkpoints") / "checkpoints" / uid
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "finish").touch()
