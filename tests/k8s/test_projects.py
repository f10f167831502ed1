"""Namespaces of projects, and work made with ``kubectl``, on a real API server."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.core.reasons import Token
from carrel_scheduler.engines.kubernetes.tasks.manifest import check_runnable
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.ledger.audit.contract import AuditFilter
from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.workloads.contract import UnsupportedField
from carrel_scheduler.workloads.launch import fitting
from carrel_scheduler.workloads.namespaces.adoption import ObjectAdoption
from carrel_scheduler.workloads.namespaces.controller import Namespaces, NamespaceTaken
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_scheduler.workloads.state.events import ProjectChanged
from carrel_schema.objects import (
    Meta,
    Project,
    ProjectSpec,
    ReasonInfo,
    Workload,
    WorkloadSpec,
)
from k8s import access
from k8s.cluster.control_plane import ControlPlane, Refused
from k8s.ours import MARKS, ApiUser, client, kubectl, make_namespace, ours
from k8s.stores import KubernetesLedgers, ledgers
from unit.workloads.harness import SchedulerHarness

__all__ = ["client", "kubectl", "ledgers", "ours"]

pytestmark = MARKS
TIMEOUT_SECONDS = 60.0
PAUSE_SECONDS = 0.2


class Fits:
    """A scheduler that lets everything wait but what asks for a thousand GPUs."""

    largest_gpu_milli = 1_000_000

    def only_instances(self) -> bool:
        return False

    def mig_model(self) -> str:
        return ""

    def unsupported_field(self, workload: Workload) -> UnsupportedField | None:
        return fitting.on_cluster(partial(check_runnable, settings=PodSettings(image="trainer")))(
            workload
        )

    def never(self, workload: Workload) -> ReasonInfo | None:
        if workload.spec.resources.gpu_milli < self.largest_gpu_milli:
            return None
        sentence = "No node has a thousand GPUs."
        return ReasonInfo(token=Token.NEVER_FITS, cls="never", sentence=sentence)


@pytest.fixture
async def ledger(ledgers: KubernetesLedgers) -> KubernetesLedger:
    return await ledgers.open()


@pytest.fixture
def namespaces(ledger: KubernetesLedger, client: KubeClient) -> Namespaces:
    return Namespaces(
        ledger,
        client,
        system="carrel-system",
        checkpoints=Checkpoints(size="1Gi", storage_class="fast"),
        chance=random.random,
    )


@pytest.fixture
def nodes() -> Fits:
    """What the scheduler knows."""
    return Fits()


@pytest.fixture
async def taking_on(
    ledger: KubernetesLedger, client: KubeClient, nodes: Fits
) -> AsyncIterator[ObjectAdoption]:
    """Running."""
    live: Any = nodes
    made = ObjectAdoption(ledger, client, live, clock=lambda: 1_790_000_000.0, again_seconds=0.5)
    task = asyncio.create_task(made.run())
    yield made
    assert not task.done(), task.exception()
    task.cancel()
    await asyncio.wait([task])


async def until(found: Callable[[], Awaitable[Any]], what: str) -> Any:
    """What ``found`` gives once it gives something."""
    for _ in range(round(TIMEOUT_SECONDS / PAUSE_SECONDS)):
        if answer := await found():
            return answer
        await asyncio.sleep(PAUSE_SECONDS)
    raise AssertionError(f"no {what} after {TIMEOUT_SECONDS} s")


def project(name: str) -> Project:
    return Project(meta=Meta(name=name), spec=ProjectSpec())


class TestNamespaces:
    """Made or adopted, and what becomes of them."""

    async def test_a_project_gets_all_it_needs(
        self, namespaces: Namespaces, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        made = await ledger.create(project("fresh"))
        await namespaces.ensure(made)
        await namespaces.ensure(made)
        labels = ours.get("/api/v1/namespaces/carrel-fresh")["metadata"]["labels"]
        assert labels["carrel.dev/project"] == "fresh"
        assert labels["carrel.dev/made-by"] == "carrel"
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        path = "/apis/rbac.authorization.k8s.io/v1/namespaces/carrel-fresh/rolebindings"
        subjects = {
            one["roleRef"]["name"]: one["subjects"][0]["name"] for one in ours.get(path)["items"]
        }
        assert subjects == {
            "carrel-researcher": "project-fresh",
            "carrel-tasks": "carrel-scheduler",
            "carrel-workspaces": "carrel-hub",
        }
        claims = "/api/v1/namespaces/carrel-fresh/persistentvolumeclaims/carrel-checkpoints"
        assert ours.get(claims)["spec"]["storageClassName"] == "fast"
        assert (await ledger.get(Project, "fresh")).status.observed_generation == 1

    async def test_what_was_there_is_adopted_when_an_admin_says_so_and_left_when_the_project_goes(
        self, namespaces: Namespaces, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        make_namespace(ours, "carrel-theirs", team="yes")
        made = await ledger.create(project("theirs"))
        with pytest.raises(NamespaceTaken, match=r"annotation carrel\.dev/adopt=theirs"):
            await namespaces.ensure(made)
        assert set(ours.get("/api/v1/namespaces/carrel-theirs")["metadata"]["labels"]) == {
            "kubernetes.io/metadata.name",
            "team",
        }
        notes = {"metadata": {"annotations": {"carrel.dev/adopt": "theirs"}}}
        ours.ask("PATCH", "/api/v1/namespaces/carrel-theirs", notes)
        await namespaces.ensure(made)
        labels = ours.get("/api/v1/namespaces/carrel-theirs")["metadata"]["labels"]
        assert labels["carrel.dev/project"] == "theirs"
        assert "carrel.dev/made-by" not in labels
        await namespaces.retire("theirs")
        left = ours.get("/api/v1/namespaces/carrel-theirs")
        assert left["metadata"]["labels"]["team"] == "yes"
        assert "carrel.dev/project" not in left["metadata"]["labels"]
        assert left["status"]["phase"] == "Active"
        path = "/apis/rbac.authorization.k8s.io/v1/namespaces/carrel-theirs/rolebindings"
        assert ours.get(path)["items"] == []

    async def test_a_namespace_with_volumes_of_others_stays(
        self, namespaces: Namespaces, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        await namespaces.ensure(await ledger.create(project("homes")))
        claim = {
            "metadata": {"name": "home-ada"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}},
        }
        ours.ask("POST", "/api/v1/namespaces/carrel-homes/persistentvolumeclaims", claim)
        await namespaces.retire("homes")
        assert ours.get("/api/v1/namespaces/carrel-homes")["status"]["phase"] == "Active"

    async def test_a_project_that_comes_again_gets_its_namespace_back(
        self, namespaces: Namespaces, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        await namespaces.ensure(await ledger.create(project("back")))
        claim = {
            "metadata": {"name": "home-ada"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}},
        }
        ours.ask("POST", "/api/v1/namespaces/carrel-back/persistentvolumeclaims", claim)
        await ledger.delete(Project, "back")
        await namespaces.retire("back")
        await namespaces.ensure(await ledger.create(project("back")))
        labels = ours.get("/api/v1/namespaces/carrel-back")["metadata"]["labels"]
        assert labels["carrel.dev/project"] == "back"

    @pytest.mark.parametrize("name", ["system", "default", "kube-system", "a" * 57])
    async def test_no_project_gets_a_namespace_of_the_installation_or_of_the_cluster(
        self, namespaces: Namespaces, ours: ControlPlane, name: str
    ) -> None:
        make_namespace(ours, "carrel-system")
        told = ApiUser(ours).create(
            {
                "apiVersion": "carrel.dev/v1alpha1",
                "kind": "Project",
                "metadata": {"name": name},
                "spec": {},
            }
        )
        assert told.code
        assert "a name o" in told.error
        before = ours.get("/api/v1/namespaces/carrel-system")["metadata"]["labels"]
        with pytest.raises(NamespaceTaken, match="should be"):
            await namespaces.ensure(project(name))
        assert ours.get("/api/v1/namespaces/carrel-system")["metadata"]["labels"] == before

    async def test_the_installations_namespace_is_none_of_a_project_whatever_it_is_called(
        self, ledger: KubernetesLedger, client: KubeClient, ours: ControlPlane
    ) -> None:
        make_namespace(ours, "carrel-ops", **{"carrel.dev/made-by": "carrel"})
        installed = Namespaces(
            ledger,
            client,
            system="carrel-ops",
            checkpoints=Checkpoints(size=""),
            chance=random.random,
        )
        with pytest.raises(NamespaceTaken, match="of the installation"):
            await installed.ensure(project("ops"))

    async def test_one_of_another_project_is_not_taken(
        self, namespaces: Namespaces, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        make_namespace(ours, "carrel-taken", **{"carrel.dev/project": "other"})
        made = await ledger.create(project("taken"))
        with pytest.raises(NamespaceTaken, match="belongs to the project other"):
            await namespaces.ensure(made)

    async def test_projects_that_come_and_go_are_followed(
        self, namespaces: Namespaces, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        running = asyncio.create_task(namespaces.run())
        await ledger.create(project("comes"))

        async def phase() -> str:
            try:
                return str(ours.get("/api/v1/namespaces/carrel-comes")["status"]["phase"])
            except Refused:
                return "none"

        async def is_there() -> bool:
            return await phase() == "Active"

        async def is_going() -> bool:
            return await phase() in ("Terminating", "none")

        await until(is_there, "namespace")
        await ledger.delete(Project, "comes")
        await until(is_going, "end of the namespace")
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.usefixtures("taking_on")
class TestTakingOn:
    """An object of the cluster is as good as the API."""

    async def test_what_is_left_open_is_filled_in(
        self, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        await ledger.create(project("vision"))
        job = Meta(name="x", project="vision", uid="uid-x", created_by="ada")
        await ledger.create(Workload(meta=job, spec=WorkloadSpec(user="ada", command=["true"])))
        asked = {"jobs": ["x"], "events": ["uid-of-others"]}
        notes = {"tensorboard": asked, "continueFrom": "x", "continues": "uid-of-others"}
        bring(ours, manifest("TensorBoard", **notes))

        async def taken() -> Any:
            return (await ledger.list(Workload, workload_kind="tensorboard")).items

        (made,) = await until(taken, "workload")
        assert (made.spec.tensorboard.events, made.spec.continues) == (("uid-x",), "uid-x")
        assert (made.spec.kind, made.spec.preemptible, made.spec.priority) == (
            "tensorboard",
            False,
            "build",
        )
        assert made.spec.command
        assert made.spec.resources.cpu_milli == 500
        assert made.spec.routes[0].access == "project"
        assert (made.meta.created_by, made.status.queued_at) == ("ada", made.meta.created_at)
        (row,) = await ledger.transitions(workload_uid=made.meta.uid)
        assert (row.to_phase, row.user) == ("pending", "ada")

        async def told() -> Any:
            return await ledger.audit.read(AuditFilter(kind="Workload"))

        (entry,) = await until(told, "entry of the audit log")
        assert (entry.user, entry.channel, entry.uid) == ("ada", "kubernetes", made.meta.uid)

    @pytest.mark.parametrize(
        ("kind", "spec", "sentence"),
        [
            ("Training", {"resources": {"gpus": 1000}}, "No node has a thousand GPUs."),
            ("Training", {"continueFrom": "x"}, "work of your own in `vision`"),
            ("Schedule", {"schedule": {"cron": "0 0 99 * *", "runs": "training"}}, "is right"),
        ],
    )
    async def test_what_can_never_run_is_told(
        self,
        ledger: KubernetesLedger,
        ours: ControlPlane,
        kind: str,
        spec: dict[str, Any],
        sentence: str,
    ) -> None:
        await ledger.create(project("vision"))
        bring(ours, manifest(kind, command=["true"], **spec))

        async def refusal() -> Any:
            return conditions(ours, kind)

        (condition,) = await until(refusal, "condition")
        assert (condition["type"], condition["status"]) == ("Accepted", "False")
        assert sentence in condition["message"]
        assert not (await ledger.list(Workload)).items
        ours.ask("DELETE", typed(kind))

    async def test_work_of_who_has_no_rights_waits_until_they_are_given(
        self, ledger: KubernetesLedger, ours: ControlPlane, taking_on: ObjectAdoption
    ) -> None:
        members: set[str] = set()

        async def may_create(project: str, user: str, _: str) -> bool:
            return project == "vision" and user in members

        taking_on._may_create = may_create
        await ledger.create(project("vision"))
        bring(ours, manifest("Training", command=["true"]))

        async def refusal() -> bool:
            return "NotPermitted" in str(conditions(ours, "Training"))

        async def taken() -> Any:
            return (await ledger.list(Workload)).items

        await until(refusal, "condition")
        assert not await taken()
        members.add("ada")
        (made,) = await until(taken, "workload")
        assert made.spec.user == "ada"

    async def test_work_may_come_before_the_node_that_it_needs(
        self, ledger: KubernetesLedger, ours: ControlPlane, nodes: Fits
    ) -> None:
        await ledger.create(project("vision"))
        bring(ours, manifest("Training", command=["true"], resources={"gpus": 1000}))

        async def refusal() -> bool:
            return "No node has a thousand GPUs." in str(conditions(ours, "Training"))

        async def taken() -> Any:
            return (await ledger.list(Workload)).items

        await until(refusal, "condition")
        nodes.largest_gpu_milli += 1
        (made,) = await until(taken, "workload")
        assert made.spec.resources.gpu_milli == 1_000_000

    async def test_work_may_come_before_its_project(
        self, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        bring(ours, manifest("Training", command=["true"]))

        async def refusal() -> bool:
            return "There is no project vision." in str(conditions(ours, "Training"))

        await until(refusal, "refusal")
        await ledger.create(project("vision"))

        async def taken() -> Any:
            return (await ledger.list(Workload)).items

        (made,) = await until(taken, "workload")
        assert made.status.phase == "pending"

    async def test_a_name_of_another_kind_is_refused(
        self, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        await ledger.create(project("vision"))
        bring(ours, manifest("Training", command=["true"]))

        async def one() -> bool:
            return len((await ledger.list(Workload)).items) == 1

        await until(one, "training")
        bring(ours, manifest("Experiment", command=["true"], experiment={}))

        async def refusal() -> bool:
            return "Another workload of this project is called typed" in str(
                conditions(ours, "Experiment")
            )

        await until(refusal, "refusal")
        ours.ask("DELETE", typed("Experiment"))

    async def test_projects_of_kubectl_get_their_group(
        self, ledger: KubernetesLedger, ours: ControlPlane
    ) -> None:
        bring(
            ours,
            {
                "apiVersion": "carrel.dev/v1alpha1",
                "kind": "Project",
                "metadata": {"name": "typed"},
                "spec": {"quota": {"gpus": 2, "memory": None}, "limit": {"gpus": None}},
            },
        )

        async def taken() -> Any:
            return (await ledger.list(Project)).items

        (made,) = await until(taken, "project")
        assert made.spec.members_group == "project-typed"
        assert made.spec.quota.gpu_milli == 2000


def manifest(kind: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "typed", "namespace": "carrel-vision"},
        "spec": {"user": "ada", **spec},
    }


def bring(plane: ControlPlane, one: dict[str, Any]) -> None:
    """Have an object made by the admin."""
    plane.ask("POST", access.place(one), one)


def typed(kind: str) -> str:
    """Where work of that manifest lies."""
    return f"{access.place(manifest(kind))}/typed"


def conditions(plane: ControlPlane, kind: str) -> Any:
    """What it is told."""
    return plane.get(typed(kind)).get("status", {}).get("conditions")


class TestDraining:
    """A project that ``kubectl`` deletes is there until nothing of it runs."""

    async def test_it_goes_when_its_work_has_ended(
        self, ledger: KubernetesLedger, ours: ControlPlane, tmp_path: Path
    ) -> None:
        harness = SchedulerHarness(ledger, tmp_path)
        await harness.recover()
        made = await harness.project("vision", 4)
        uid = await harness.submit("vision", "runs")
        await harness.runs(uid)
        hearing = asyncio.create_task(_hear(ledger, made.meta.resource_version, harness))
        ours.ask("DELETE", kinds.PROJECT.resource.path(name="vision"))

        async def told() -> bool:
            await harness.settle()
            return bool(harness.engine.stopping)

        await until(told, "end of its work")
        found = await ledger.get(Project, "vision")
        assert found.meta.deleting
        await harness.recover()  # a restart in between changes nothing
        assert await harness.phase(uid) == "stopping"
        await harness.ends(uid, None, signal=15)

        async def gone() -> bool:
            return "NotFound" in ApiUser(ours).get(kinds.PROJECT.resource, name="vision").error

        await until(gone, "end of the project")
        assert await harness.phase(uid) == "stopped"
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        await harness.loop.executor.close()


async def _hear(ledger: KubernetesLedger, version: int, harness: SchedulerHarness) -> None:
    async for change in ledger.watch(Project, version, statuses=False):
        harness.loop.enqueue(ProjectChanged(change))
