"""From the workspace's pod to the pod of a job that its client asks for: the same volumes."""

from typing import Any

import pytest

from carrel.volumes import VOLUMES, hint_unmounted, set_working_dir
from carrel_scheduler.engines.contract import TaskId, TaskSpec
from carrel_scheduler.engines.kubernetes.tasks.manifest import pod
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings
from unit.spawner_kubernetes.pods import manifest, spawner

MANY = ["ReadWriteMany"]


async def told(**settings: Any) -> dict[str, str]:
    """The variable that a workspace's container has."""
    container = (await manifest(spawner(**settings)))["spec"]["containers"][0]
    return {one["name"]: one["value"] for one in container["env"] if one["name"] == VOLUMES}


def job(body: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Path -> claim of a volume, in the pod of a job with this request."""
    task = TaskSpec(
        id=TaskId("u1", 0, 0),
        name="x",
        project="vision",
        user="ada",
        node="n",
        command=("true",),
        volumes=tuple((one["source"], one["destination"]) for one in body.get("volumes", ())),
        working_dir=body.get("working_dir", ""),
    )
    spec = pod(task, PodSettings(image="trainer"))["spec"]
    container = spec["containers"][0]
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in spec["volumes"]
        if volume["name"].startswith("claim-")
    }
    return {
        mount["mountPath"]: (claims[mount["name"]], container["workingDir"])
        for mount in container["volumeMounts"]
        if mount["name"] in claims
    }


async def test_a_job_sees_what_its_workspace_sees_at_the_same_paths() -> None:
    body: dict[str, Any] = {}
    environ = await told(storage_access_modes=MANY)
    set_working_dir(body, "/home/carrel/thesis", environ)
    assert job(body) == {
        "/home/carrel": ("home-ada", "/home/carrel/thesis"),
        "/home/carrel/project": ("project", "/home/carrel/thesis"),
    }
    assert hint_unmounted("/home/carrel/thesis", environ) == ""


async def test_a_home_of_one_node_stays_the_workspaces_and_its_user_is_told() -> None:
    body: dict[str, Any] = {}
    environ = await told()
    set_working_dir(body, "/home/carrel/thesis", environ)
    assert job(body) == {}
    hint = hint_unmounted("/home/carrel/thesis", environ)
    assert "do not see `/home/carrel/thesis`" in hint
    assert "`/home/carrel/project`" in hint
    assert "--volume" in hint
    set_working_dir(body, "/home/carrel/project/x", environ)
    assert job(body) == {"/home/carrel/project": ("project", "/home/carrel/project/x")}


async def test_an_admin_may_have_jobs_run_beside_it() -> None:
    body: dict[str, Any] = {}
    set_working_dir(body, "/home/carrel", await told(jobs_run_beside=True))
    assert job(body).keys() == {"/home/carrel", "/home/carrel/project"}


@pytest.mark.parametrize("modes", [["ReadWriteOncePod"], ["ReadOnlyMany"]])
async def test_what_one_pod_alone_may_write_is_never_shown(modes: list[str]) -> None:
    environ = await told(
        storage_access_modes=modes, project_volume_access_modes=modes, jobs_run_beside=True
    )
    assert environ == {VOLUMES: "[]"}
    assert "Name a volume" in hint_unmounted("/home/carrel", environ)
    assert hint_unmounted("/home/carrel", {}) == ""
