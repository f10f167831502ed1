"""Every kind of work on real pods, side by side, as users bring it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from k8s.cluster.loading import Images
from k8s.cluster.node import Node
from k8s.cluster_service import TIMEOUT_SECONDS
from k8s.kinds import library
from k8s.kinds.site import Site, gateway
from k8s.ours import Kubectl, kubectl, ours
from k8s.served import Shell, finish, served

__all__ = ["kubectl", "ours"]  # fixtures
pytestmark = [pytest.mark.enable_socket, pytest.mark.slow, pytest.mark.timeout(1800)]
PROGRAMS: Final = Path(__file__).with_name("kinds")
PROJECTS: Final = ("prints", "prose")
MPI_HOME: Final = "/opt/mpi"


@pytest.fixture
async def site(
    node: Node, images: Images, ours: object, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[Site]:
    async with (
        served(node, images, kubectl, tmp_path, PROJECTS) as service,
        gateway(service) as address,
    ):
        home = tmp_path / "home"
        home.mkdir()
        yield Site(service, Shell(service, home), kubectl, node, address, home)


async def test_every_kind_of_work_runs_on_a_cluster(site: Site) -> None:
    await what_no_pod_can_be_is_refused_with_its_field(site)
    async with asyncio.TaskGroup() as group:
        group.create_task(a_gang_starts_again_when_a_worker_is_killed(site))
        group.create_task(an_experiment_goes_on_after_an_elastic_gang_and_it_gave_way(site))
        group.create_task(ranks_of_mpi_are_started_in_other_pods(site))
        group.create_task(an_endpoint_changes_sleeps_and_wakes(site))
        group.create_task(a_notebook_comes_back_with_its_outputs(site))
        group.create_task(a_schedule_begins_its_runs(site))


async def what_no_pod_can_be_is_refused_with_its_field(site: Site) -> None:
    refused = {
        ("--volume", "/data:/data"): "volumes.0.source is '/data': a volume claim of the project",
        ("--volume", "carrel-checkpoints:x"): "shown to nobody as a whole",
    }
    for words, sentence in refused.items():
        code, _, error = await site.shell.run("submit", "no", "-p", "prints", *words, "--", "true")
        assert code == 1
        assert sentence in error
    manifest = {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": "Training",
        "metadata": {"name": "no", "namespace": "carrel-prints"},
        "spec": {"user": "ada", "command": ["true"], "volumes": [{"source": "/data"}]},
    }
    await asyncio.to_thread(site.kubectl.apply, manifest)
    path = "jsonpath={.status.conditions[?(@.type=='Accepted')].message}"
    where = ("trainings.carrel.dev/no", "-n", "carrel-prints")
    refused_yet = ("wait", "--for=condition=Accepted=False", "--timeout=180s")
    await asyncio.to_thread(site.kubectl, *refused_yet, *where)
    said = await asyncio.to_thread(site.kubectl, "get", *where, "-o", path)
    assert "volumes.0.source" in said
    await asyncio.to_thread(site.kubectl, "delete", *where)


async def a_gang_starts_again_when_a_worker_is_killed(site: Site) -> None:
    fields = {"kind": "distributed", "tasks": 2, "project": "prints"}
    program = (PROGRAMS / "worker.py").read_text()
    await site.shell.submit("duet", command=["python", "w.py"], files={"w.py": program}, **fields)
    for index in (0, 1):
        await site.service.said("prints", "duet", f"met as {index} of 2", index=str(index))
    merged = await site.shell("logs", "duet", "-p", "prints")
    assert {"[duet-0] met as 0 of 2", "[duet-1] met as 1 of 2"} <= set(merged.splitlines())
    # A name may be known later than its member can be reached.
    found = "until getent hosts duet-1; do sleep 0.1; done"
    there = ("sh", "-c", f"echo $CARREL_MEMBER at $MASTER_ADDR; {found}")
    said = await site.shell("exec", "duet", "-p", "prints", "--", *there)
    uid = (await site.service.ask("GET", "/workloads/prints/duet"))["uid"]
    assert f"duet-0 at duet-0.gang-{uid}" in said
    assert f"duet-1.gang-{uid}" in said
    killing = ("exec", "-n", "carrel-prints", f"{uid}-1-0", "--", "sh", "-c", "kill -KILL -1")
    await asyncio.to_thread(site.kubectl.run, *killing)
    again = await site.service.until("prints", "duet", lambda status: status["attempt"] == 1)
    assert again["failures"] == 1
    for index in (0, 1):
        await site.service.said("prints", "duet", "met as", index=str(index), attempt="1")
    finish(site.node, "prints", uid)
    ended = await site.service.phase("prints", "duet", "succeeded")
    assert [task["attempt"] for task in ended["tasks"]] == [1, 1]


async def an_experiment_goes_on_after_an_elastic_gang_and_it_gave_way(site: Site) -> None:
    """The gang borrows what the trials claim; one of them gives way to urgent work."""
    asleep = ["python", "-c", "import time; time.sleep(3600)"]
    gang = ("--distributed", "--min-workers", "2", "--max-workers", "8", "--gpus", "1")
    await site.shell(
        "submit", "accordion", "-p", "prints", "--grace-period", "2", *gang, "--", *asleep
    )
    service = site.service
    await service.until("prints", "accordion", lambda one: alive(one) == 8)
    spec = {
        "parameters": {"x": {"type": "float", "low": -1.0, "high": 1.0}},
        "completions": 4,
        "parallelism": 2,
        "seed": 1,
    }
    program = (PROGRAMS / "trial.py").read_text()
    fields = {"kind": "experiment", "gpus": 2, "project": "prose", "experiment": spec}
    await site.shell.submit("search", command=["python", "t.py"], files={"t.py": program}, **fields)
    board = {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": "TensorBoard",
        "metadata": {"name": "curves", "namespace": "carrel-prose"},
        "spec": {"user": "ada", "tensorboard": {"jobs": ["search"]}},
    }
    assert (await asyncio.to_thread(site.kubectl.apply, board)).code == 0
    for number in (0, 1):
        await service.said("prose", f"search-{number}", "begins at 0\n")
    await service.until("prints", "accordion", lambda one: alive(one) == 4)
    urgent = ("--gpus", "2", "--priority", "very-high", "--cpu", "50m")
    await site.shell("submit", "urgent", "-p", "prose", *urgent, "--", "true")
    await service.phase("prose", "urgent", "succeeded")
    preempted = [await went_on(site, f"search-{number}") for number in (0, 1)]
    assert sorted(preempted) == [0, 1]
    found = (await service.phase("prose", "search", "succeeded"))["experiment"]
    assert found["completed"] == 4
    trials = (await service.ask("GET", "/experiments/prose/search/trials"))["items"]
    assert found["best_value"] == min(trial["value"] for trial in trials)
    assert "  x = " in await site.shell("experiment", "best", "search", "-p", "prose")
    await site.until_asked("prose/curves/data/runs", shows({f"search/{n}" for n in range(4)}))
    await service.until("prints", "accordion", lambda one: alive(one) == 8)
    assert (await service.status("prints", "accordion"))["failures"] == 0


async def went_on(site: Site, name: str) -> int:
    """Tell a trial that runs to finish; how often it gave way before, without losing its steps."""
    trial = await site.service.phase("prose", name, "running")
    attempt = str(trial["attempt"])
    begun = await site.service.said("prose", name, "begins at ", attempt=attempt)
    assert trial["preemptions"] == trial["attempt"] == int(int(begun.split()[-1]) > 0)
    assert trial["failures"] == 0
    uid = (await site.service.ask("GET", f"/workloads/prose/{name}"))["uid"]
    finish(site.node, "prose", uid)
    return int(trial["preemptions"])


async def ranks_of_mpi_are_started_in_other_pods(site: Site) -> None:
    provided = await asyncio.to_thread(library.provide, site.folder.parent / "mpi", "carrel-prints")
    told = await asyncio.to_thread(site.kubectl.apply, *provided)
    assert told.code == 0, told.error
    given = {
        "PATH": f"{MPI_HOME}/bin:/opt/carrel/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{MPI_HOME}/lib/python3.11/site-packages",
        "LD_LIBRARY_PATH": f"{MPI_HOME}/lib",
    }
    await site.shell.submit(
        "total",
        *("--volume", f"mpi:{MPI_HOME}:ro"),
        kind="distributed",
        tasks=3,
        project="prints",
        rendezvous={"launcher": "mpi"},
        environment=given,
        command=["mpirun", "-n", "3", "python", "total.py"],
        files={"total.py": (PROGRAMS / "total.py").read_text()},
    )
    await site.service.phase("prints", "total", "succeeded")
    said = await site.service.logs("prints", "total", index="0")
    ranks = {f"rank {rank} of 3 on total-{rank}: 6" for rank in range(3)}
    assert ranks <= set(said.splitlines())


async def an_endpoint_changes_sleeps_and_wakes(site: Site) -> None:
    section = {"min_replicas": 0, "max_replicas": 2, "readiness_path": "/", "drain_seconds": 10}
    program = (PROGRAMS / "model.py").read_text()
    fields = {"kind": "inference", "project": "prints", "inference": section}
    await site.shell.submit("model", command=["python", "m.py"], files={"m.py": program}, **fields)
    service = site.service
    await service.until("prints", "model", lambda one: serving(one) == 1)
    await site.until_asked("prints/model/", lambda *answer: answer == (200, "1"))
    change = {"environment": {"VERSION": "2"}}
    await service.ask("PATCH", "/workloads/prints/model", change)
    answers = {(200, "1")}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (200, "2") not in answers:
            answers.add(await site.asked("prints/model/"))
            await asyncio.sleep(0.05)
    assert answers == {(200, "1"), (200, "2")}
    await service.ask("PATCH", "/workloads/prints/model", {"inference": {"idle_seconds": 1}})
    await service.until("prints", "model", lambda one: serving(one) == 0)
    await pods_gone(site, "replica")
    assert await site.asked("prints/model/") == (200, "2")


async def a_notebook_comes_back_with_its_outputs(site: Site) -> None:
    site.shell.write("squares.ipynb", notebook("n = 2", "print(n * n)"))
    words = ("squares.ipynb", "-p", "prints", "--name", "squares", "--param", "n=12")
    await site.shell("run-notebook", *words)
    await site.service.phase("prints", "squares", "succeeded")
    assert "squares.squares.ipynb" in await site.shell("fetch", "squares", "-p", "prints")
    executed = json.loads((site.folder / "squares.squares.ipynb").read_text())
    (said,) = [one["text"] for cell in executed["cells"] for one in cell.get("outputs", [])]
    assert "".join(said) == "144\n"


def notebook(parameters: str, code: str) -> dict[str, Any]:
    """Two cells."""
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": name,
            "metadata": {"tags": tags},
            "outputs": [],
            "source": source,
        }
        for name, tags, source in (("a", ["parameters"], parameters), ("b", [], code))
    ]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


async def a_schedule_begins_its_runs(site: Site) -> None:
    clock = ("--schedule", "* * * * *", "--runs", "training", "--cpu", "50m")
    await site.shell("submit", "tick", "-p", "prints", *clock, "--", "echo", "on time")
    await site.service.until("prints", "tick", lambda one: begun(one) > 0)
    await site.service.phase("prints", "tick-1", "succeeded")
    assert await site.service.logs("prints", "tick-1") == "on time\n"
    await site.service.ask("POST", "/workloads/prints/tick/suspend")


def shows(runs: set[str]) -> Callable[[int, str], bool]:
    """Whether a TensorBoard has these."""
    return lambda status, text: status == 200 and set(json.loads(text)) == runs


def alive(status: dict[str, Any]) -> int:
    """How many workers run."""
    running = [one for one in status["tasks"] if one.get("ended_at") is None]
    return len(running) if status["phase"] == "running" else 0


def begun(status: dict[str, Any]) -> int:
    """How many runs a schedule has begun; it is told once somebody has looked after it."""
    return int((status.get("schedule") or {"runs": 0})["runs"])


def serving(status: dict[str, Any]) -> int:
    """How many replicas are wanted and ready; -1 while it is about to change."""
    found = status.get("endpoint") or {"wanted": -1}
    return int(found["wanted"]) if found["wanted"] == found.get("ready", 0) else -1


async def pods_gone(site: Site, kind: str) -> None:
    """Wait until no pod of a kind runs."""
    path = f"/api/v1/namespaces/carrel-prints/pods?labelSelector=carrel.dev%2Fkind%3D{kind}"
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            found = site.node.plane.get(path)["items"]
            if all(one["status"]["phase"] != "Running" for one in found):
                return
            await asyncio.sleep(0.2)
