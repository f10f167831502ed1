"""Work that is submitted from a workspace: where it starts, and what of the workspace it sees."""

import json
from pathlib import Path
from typing import Any

import pytest

from carrel.client.resources.map import call_bodies
from carrel.notebook.cell import Captured, body_here
from carrel.options import RequestFields
from carrel.volumes import VOLUMES, set_working_dir

HOME = {"source": "home-ada", "destination": "/home/carrel"}
SHARED = {"source": "project", "destination": "/home/carrel/project"}
ON_CLUSTER = {VOLUMES: json.dumps([HOME, SHARED])}


def started(folder: str, environ: dict[str, str], **body: Any) -> dict[str, Any]:
    set_working_dir(body, folder, environ)
    return body


def test_on_one_machine_work_starts_where_its_user_is() -> None:
    assert started("/home/ada/x", {}) == {"working_dir": "/home/ada/x"}
    assert started("/home/ada/x", {}, working_dir="/data") == {"working_dir": "/data"}


def test_on_a_cluster_it_sees_the_volumes_of_the_workspace() -> None:
    both = {"working_dir": "/home/carrel/x", "volumes": [HOME, SHARED]}
    assert started("/home/carrel/x", ON_CLUSTER) == both
    own = {"source": "data", "destination": "/home/carrel/project"}
    found = started("/home/carrel", ON_CLUSTER, volumes=[own])
    assert found["volumes"] == [own, HOME]


def test_in_a_folder_that_jobs_do_not_see_it_starts_in_its_own() -> None:
    assert started("/scratch", ON_CLUSTER) == {}
    assert started("/home/carrel/x", {VOLUMES: "[]"}) == {}
    job = {"CARREL_WORKLOAD_UID": "abc"}
    assert started("/state/tasks/abc/0-0/work", job) == {}
    assert started("/home/ada/x", job) == {"working_dir": "/home/ada/x"}


def cell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    asked = RequestFields("training", {"project": "vision"})
    return body_here(None, Captured({}, (), 0), asked)  # type: ignore[arg-type]


def test_a_cell_runs_where_its_notebook_is_if_jobs_see_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cell(tmp_path, monkeypatch)["command"][1:] == ["job.py", str(tmp_path)]
    seen = {"source": "home-ada", "destination": str(tmp_path)}
    monkeypatch.setenv(VOLUMES, json.dumps([seen]))
    body = cell(tmp_path, monkeypatch)
    assert (body["command"][2], body["volumes"]) == (str(tmp_path), [seen])
    monkeypatch.setenv(VOLUMES, "[]")
    body = cell(tmp_path, monkeypatch)
    assert (body["command"][2], body.get("volumes", [])) == (".", [])


def test_calls_find_the_modules_of_a_folder_that_jobs_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {"source": "home-ada", "destination": str(tmp_path)}
    monkeypatch.setenv(VOLUMES, json.dumps([seen]))
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "t")
    monkeypatch.chdir(tmp_path)
    bodies = call_bodies(len, ["a", "b"], project="vision", name="m")
    assert [body["volumes"] for body in bodies] == [[seen], [seen]]
    assert bodies[0]["command"][-1] == str(tmp_path)
