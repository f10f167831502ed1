"""The oldest Kubernetes that is tested: the installation on its API server, and what runs on it.

Kubelets are simulated, the scheduler is a process with the rights of its service account.
"""

import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from carrel_scheduler.kube.errors import NotFound
from carrel_scheduler.kube.resources import NAMESPACES, PODS
from carrel_scheduler.ledger.resources import kinds
from carrel_schema.objects import Meta, Project, ProjectSpec, Quota
from k8s import access, test_rbac
from k8s.cluster import binaries
from k8s.cluster.control_plane import ControlPlane
from k8s.cluster.records import Record
from k8s.cluster.versions import OLDEST
from k8s.fault_site import FaultSite, database, fault_site
from k8s.ours import MARKS, Kubectl, client, install, install_kinds
from k8s.restartable_server import RestartableServer
from k8s.scheduler_processes import SchedulerForkServer
from k8s.scheduler_replicas import SchedulerReplica
from k8s.scheduling import comes_to_be
from k8s.stores import stores
from k8s.test_rbac import projects

__all__ = ["client", "projects", "stores"]  # fixtures

pytestmark = MARKS
SYSTEM: Final = "carrel-system"
GROUP: Final = "kueue.x-k8s.io/pod-group-name"
TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"


@pytest.fixture(scope="module")
def server() -> Iterator[RestartableServer]:
    """An API server of that version without controllers."""
    record = Record.begin()
    try:
        made = RestartableServer(binaries.oldest(print), record)
        made.start()
        yield made
    finally:
        record.end()


@pytest.fixture(scope="module")
def plane(server: RestartableServer) -> ControlPlane:
    """In the place of the newest one, for whatever is asked for here."""
    return server.plane


@pytest.fixture(scope="module")
def kubectl(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """That of the newest version."""
    to = tmp_path_factory.mktemp("oldest") / "admin.json"
    return Kubectl(binaries.control_plane(print)["kubectl"], plane.kubeconfig(to))


@pytest.fixture(scope="module")
def ours(plane: ControlPlane, kubectl: Kubectl) -> ControlPlane:
    """It knows our kinds."""
    install_kinds(plane, kubectl)
    return plane


@pytest.fixture(scope="module")
def installed(ours: ControlPlane, kubectl: Kubectl) -> ControlPlane:
    """It has the whole installation."""
    install(ours, kubectl)
    return ours


@pytest.fixture(scope="module")
def fork_server() -> Iterator[SchedulerForkServer]:
    """Where schedulers come from."""
    made = SchedulerForkServer()
    yield made
    made.close()


class TestInstallation(test_rbac.TestRights):
    """Every right and every policy, as on the newest version."""


def test_it_is_that_version_and_its_definitions_are_taken_whole(ours: ControlPlane) -> None:
    assert ours.get("/version")["gitVersion"] == OLDEST
    for named in kinds.ALL:
        name = f"{named.resource.plural}.carrel.dev"
        found = ours.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        states = {one["type"]: one["status"] for one in found["status"]["conditions"]}
        assert (states["Established"], states.get("NonStructuralSchema")) == ("True", None)


@asynccontextmanager
async def scheduled(
    plane: ControlPlane, fork_server: SchedulerForkServer, folder: Path
) -> AsyncIterator[FaultSite]:
    """Two projects of four GPUs on two nodes with four, and a scheduler."""
    own = json.loads(access.kubeconfig(plane, "carrel-scheduler", folder / "own").read_text())
    token = own["users"][0]["user"]["token"]
    async with (
        fault_site(plane.kubeconfig(folder / "admin"), folder, SYSTEM) as here,
        StandInHub({"ada": Account("ada", (USE, ADMIN))}) as hub,
    ):
        replica = SchedulerReplica(
            *("only", fork_server, replace(plane, admin_token=token), folder, database(folder)),
            *(SYSTEM, hub.url, random.Random(1)),
        )
        try:
            await replica.open()
            replica.start(faulty=False)
            await here.add_nodes(2)
            for word in ("a", "b"):
                await open_project(here, word, 4)
            yield here
        except BaseException as error:
            for log in folder.glob("only/log-*"):
                error.add_note(log.read_text()[-4000:])
            raise
        finally:
            await replica.close()


async def open_project(here: FaultSite, word: str, gpus: int) -> None:
    """A project whose namespace the scheduler makes, with what it may do there."""
    spec = ProjectSpec(quota=Quota(gpu_milli=1000 * gpus))
    await here.ledger.create(Project(meta=Meta(name=here.project(word)), spec=spec))

    async def there() -> bool:
        with suppress(NotFound):
            await here.client.get(NAMESPACES, here.namespace(word))
            return True
        return False

    await comes_to_be(there)


async def test_work_and_pods_run_are_preempted_and_end(
    installed: ControlPlane, fork_server: SchedulerForkServer, tmp_path: Path
) -> None:
    async with scheduled(installed, fork_server, tmp_path) as here:
        await work_of_ours_runs_to_its_end(here)
        await a_gang_starts_whole(here)
        await pods_over_quota_are_evicted_for_others(here)


async def work_of_ours_runs_to_its_end(here: FaultSite) -> None:
    await here.add_work("a", "digits", "training", tasks=1, gpus=2)
    pod = await here.until(lambda: next(iter(here.bound("a").values()), None), "a pod of ours")
    assert len(pod.metadata.annotations["carrel.dev/devices"].split(",")) == 2
    await here.until(lambda: here.of("a")[pod.metadata.name].status.phase == "Running", "its run")
    await here.finish(pod)
    await here.until(lambda: not here.bound("a"), "its end")
    while (phase := (await here.work())["digits"].status.phase) != "succeeded":
        assert phase in {"pending", "starting", "running"}, phase
        await here.until(here.changed.is_set, "a change")


async def a_gang_starts_whole(here: FaultSite) -> None:
    for name in ("one", "two"):
        member = here.pod(name, 3)
        member["metadata"] |= {"labels": {GROUP: "pair"}, "annotations": {TOTAL: "2"}}
        assert not here.bound("b")
        await here.client.create(PODS, member, here.namespace("b"))
    await here.until(lambda: len(here.bound("b")) == 2, "both pods of the gang")
    for pod in here.bound("b").values():
        await here.finish(pod)
    await here.until(lambda: not here.bound("b"), "the gang's end")


async def pods_over_quota_are_evicted_for_others(here: FaultSite) -> None:
    for number in range(8):
        await here.add_pod("a", f"a-{number}")
    await here.until(lambda: len(here.bound("a")) == 8, "a full cluster")
    here.silent |= set(here.nodes)  # what is evicted stays to be looked at
    for number in range(4):
        await here.add_pod("b", f"b-{number}")

    def told() -> list[str]:
        return [
            condition.message
            for pod in here.of("a").values()
            if pod.metadata.deletion_timestamp
            for condition in pod.status.conditions
            if condition.type == "DisruptionTarget" and here.project("b") in condition.message
        ]

    await here.until(lambda: len(told()) == 4, "four victims that were told")
    here.silent.clear()
    await here.until(lambda: len(here.bound("b")) == 4, "the room that they need")
    assert len(here.bound("a")) == 4
    await here.check_room()
