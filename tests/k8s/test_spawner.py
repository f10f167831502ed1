"""The Hub's workspaces on a real API server, with the rights that the Hub has there and no more."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from contract.hub.stack import TIMEOUT_SECONDS, Person, person, until
from k8s import access
from k8s.cluster.plane import ControlPlane
from k8s.pod_workspaces import Cluster, ClusterStack

# Of the project's controller, where its tests ran before in this cluster.
CHECKPOINTS = "carrel-checkpoints"
pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
PEOPLE: Final = {"ada": ["vision"], "grace": ["speech"], "linus": ["vision", "speech"], "admin": []}


@pytest.fixture(scope="module")
def stack(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterStack]:
    folder: Path = tmp_path_factory.mktemp("hub")
    access.give(plane)
    for project in ("vision", "speech"):
        access.project_namespace(plane, project)
    hubs = access.kubeconfig(plane, "carrel-hub", folder / "kubeconfig.json")
    with ClusterStack(folder / "state", PEOPLE, plane, hubs) as running:
        yield running


@pytest.fixture
def cluster(stack: ClusterStack) -> Iterator[Cluster]:
    yield stack.cluster
    stack.cluster.hold = stack.cluster.silent = False


async def test_a_workspace_is_a_pod_of_its_project(stack: ClusterStack, cluster: Cluster) -> None:
    async with person(stack, "ada") as ada:
        assert await ada.start(gpus=1, cpu=0.5, memory_gib=1) in (201, 202)
        await ada.until_ready()
        workload = stack.fake.workload("vision", "workspace-ada")
        assert (workload["spec"]["external"], workload["spec"]["port"]) == (True, cluster.port)
        assert not workload["spec"].get("command")
        pod = cluster.pod()
        assert pod["metadata"]["namespace"] == "carrel-vision"
        assert pod["metadata"]["labels"]["carrel.dev/task"] == f"{workload['uid']}-0-0"
        assert pod["spec"]["schedulerName"] == "carrel"
        inside = await ada.inside()
        assert inside["CARREL_PROJECT"] == "vision"
        assert inside["CARREL_URL"] == stack.fake.url
        assert inside["JUPYTERHUB_API_TOKEN"] == cluster.secret(pod)["JUPYTERHUB_API_TOKEN"]
        assert cluster.owner_of_secret(pod) == pod["metadata"]["uid"]
        assert inside["JUPYTERHUB_API_TOKEN"] not in json.dumps(pod)
        claims = _names(stack, "/api/v1/namespaces/carrel-vision/persistentvolumeclaims")
        assert set(claims) - {CHECKPOINTS} == {"home-ada", "project"}
        await _end(stack, ada)
        assert stack.fake.workload("vision", "workspace-ada")["status"]["phase"] == "stopped"
        assert not cluster.pods()
        assert not cluster.secrets()
        claims = _names(stack, "/api/v1/namespaces/carrel-vision/persistentvolumeclaims")
        assert set(claims) - {CHECKPOINTS} == {"home-ada", "project"}


async def test_the_wait_for_a_place_is_told_and_costs_no_pod(
    stack: ClusterStack, cluster: Cluster
) -> None:
    async with person(stack, "ada") as ada:
        cluster.hold = True
        starting = asyncio.create_task(ada.start(gpus=1))
        await until(lambda: bool(_of(stack, "ada")), what="the workload")
        sentence = "It waits until `grace-train` has saved its work."
        stack.fake.status(
            "vision", "workspace-ada",
            reason={"token": "WaitsForRoom", "cls": "not-now", "sentence": sentence,
                    "data": {"nominated": True}},
        )  # fmt: skip
        told: list[str] = []
        following = asyncio.create_task(_follow(ada, told))
        await until(lambda: sentence in told, what="what it waits for")
        assert cluster.pods() == []
        cluster.hold = False
        await ada.until_ready()
        await asyncio.gather(starting, following)
        assert told.index(sentence) < told.index("Your place is ready; the workspace is starting.")
        await _end(stack, ada)


async def test_no_room_is_a_refusal_that_leaves_nothing(
    stack: ClusterStack, cluster: Cluster
) -> None:
    async with person(stack, "ada") as ada:
        cluster.hold = True
        starting = asyncio.create_task(ada.start(gpus=1))
        await until(lambda: bool(_of(stack, "ada")), what="the workload")
        stack.fake.wait(
            "vision", "workspace-ada", "All 4 GPUs of `vision` are in use.", "QuotaUsed"
        )
        assert await starting in (202, 409)
        await ada.until("", lambda model: not model.get("pending"))
        await until(lambda: not cluster.secrets() and not _of(stack, "ada"), what="nothing left")
        assert not cluster.pods()


async def test_its_turn_in_the_queue_has_come(stack: ClusterStack, cluster: Cluster) -> None:
    async with person(stack, "linus") as linus:
        fields = {"action": "join", "project": "speech", "gpus": 1, "cpu": 1, "memory_gib": 1}
        await linus.post("/hub/carrel/queue/linus", fields)
        queued = stack.fake.workload("speech", "workspace-linus")
        assert queued["spec"]["hold_for_claim"]
        stack.fake.status("speech", "workspace-linus", phase="starting")
        options: dict[str, Any] = {"claim": "workspace-linus", "project": "speech", "gpus": 1.0}
        assert await linus.start(**options) in (201, 202)
        await linus.until_ready()
        claimed = stack.fake.workload("speech", "workspace-linus")
        assert (claimed["uid"], claimed["spec"]["external"]) == (queued["uid"], True)
        assert cluster.pod()["metadata"]["namespace"] == "carrel-speech"
        await _end(stack, linus)


async def test_named_workspaces_in_different_projects(
    stack: ClusterStack, cluster: Cluster
) -> None:
    async with person(stack, "linus") as linus:
        await linus.start(project="vision")
        await linus.start("gpu-lab", project="speech")
        await linus.until_ready()
        await linus.until_ready("gpu-lab")
        where = {one["metadata"]["namespace"]: one["metadata"]["name"] for one in cluster.pods()}
        assert set(where) == {"carrel-vision", "carrel-speech"}
        assert where["carrel-speech"].startswith("workspace-linus--gpu-lab-")
        await linus.api("DELETE", "/users/linus/servers/gpu-lab", {"remove": True})
        await linus.until_stopped("gpu-lab")
        assert (await linus.server())["ready"]
        await _end(stack, linus)


@pytest.mark.parametrize("made", [False, True], ids=["before the pod", "with a pod"])
async def test_a_hub_killed_in_the_middle_of_a_start_goes_on(
    stack: ClusterStack, cluster: Cluster, *, made: bool
) -> None:
    async with person(stack, "ada") as ada:
        cluster.hold, cluster.silent = not made, True
        starting = asyncio.create_task(ada.start())
        begun: Callable[[], Any] = cluster.pods if made else cluster.secrets
        await until(lambda: bool(begun()), what="what was begun")
        before = [one["metadata"]["uid"] for one in cluster.pods()]
        stack.stop("hub", signal.SIGKILL)
        await asyncio.gather(starting, return_exceptions=True)
        cluster.hold = cluster.silent = False
        stack.start("hub")
        await asyncio.to_thread(stack.wait_for_hub)
        await ada.until_ready()
        pod = cluster.pod()
        assert not made or [pod["metadata"]["uid"]] == before
        token = cluster.secret(pod)["JUPYTERHUB_API_TOKEN"]
        assert (await ada.inside())["JUPYTERHUB_API_TOKEN"] == token
        await _end(stack, ada)


async def test_a_hub_restart_keeps_the_workspace(stack: ClusterStack, cluster: Cluster) -> None:
    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        before = cluster.pod()["metadata"]["uid"]
        await asyncio.to_thread(stack.restart_hub, signal.SIGKILL)
        await ada.until_ready()
        assert cluster.pod()["metadata"]["uid"] == before
        await _end(stack, ada)


async def test_a_workspace_that_the_scheduler_stopped_says_why(
    stack: ClusterStack, cluster: Cluster
) -> None:
    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        stack.fake.stop("vision", "workspace-ada", "Idle", "Stopped: nobody used it for 1 h.")
        await ada.until_stopped()
        _, home = await ada.get("/hub/home")
        assert "Stopped: nobody used it for 1 h." in home
        await until(lambda: not cluster.secrets(), what="the end of the secret")


async def test_stopped_while_it_starts_nothing_is_left(
    stack: ClusterStack, cluster: Cluster
) -> None:
    async with person(stack, "ada") as ada:
        cluster.silent = True
        starting = asyncio.create_task(ada.start())
        await until(lambda: bool(cluster.pods()), what="the pod")
        await ada.api("DELETE", "/users/ada/server")
        await asyncio.gather(starting, return_exceptions=True)
        await ada.until_stopped()
        await until(lambda: not cluster.pods() and not cluster.secrets(), what="the end of all")


async def test_a_project_whose_space_is_not_there_yet(
    stack: ClusterStack, plane: ControlPlane, cluster: Cluster
) -> None:
    async with person(stack, "admin") as admin:
        await admin.api("POST", "/groups/project-late", {})
        await admin.api("POST", "/groups/project-late/users", {"users": ["grace"]})
        stack.fake.project("late")
    async with person(stack, "grace") as grace:
        status, answer = await grace.api(
            "POST", "/users/grace/servers/", {"user_options": {"project": "late"}}
        )
        assert status in (403, 503), answer
        assert "admin has to look" in str(answer) or "is not there yet" in str(answer)
        access.project_namespace(plane, "late")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await grace.start(project="late") not in (201, 202):  # noqa: ASYNC110 - rights
                await asyncio.sleep(0.5)
        await grace.until_ready()
        assert cluster.pod()["metadata"]["namespace"] == "carrel-late"
        await _end(stack, grace)


async def _follow(somebody: Person, told: list[str]) -> None:
    """Read the progress page as it comes, to its end."""
    url = f"{somebody.stack.url}/hub/api/users/{somebody.name}/server/progress"
    async with somebody.session.get(url, params={"_xsrf": somebody.xsrf()}) as answer:
        async for line in answer.content:
            if line.startswith(b"data: "):
                event = json.loads(line.removeprefix(b"data: "))
                told.append(event["message"])


async def _end(stack: ClusterStack, somebody: Any) -> None:
    await somebody.api("DELETE", f"/users/{somebody.name}/server")
    await somebody.until_stopped()
    await until(lambda: not stack.cluster.pods(), what="the end of the pod")


def _of(stack: ClusterStack, user: str) -> list[dict[str, Any]]:
    return [
        one
        for one in stack.fake.workloads()
        if one["spec"]["user"] == user and one["status"]["phase"] != "stopped"
    ]


def _names(stack: ClusterStack, path: str) -> list[str]:
    return sorted(one["metadata"]["name"] for one in stack.plane.get(path)["items"])
