"""Rights on a real API server: the page's table cell by cell, and what policies add to roles."""

import asyncio
import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from carrel_scheduler.core.settings import NAMED
from carrel_scheduler.engines.kubernetes.pods.devices.types import RESOURCE_CLAIMS
from carrel_scheduler.engines.kubernetes.shared_gpus import reservation
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import ReservationSettings
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.workloads.namespaces.controller import Namespaces
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_schema.names import GPU_UUIDS
from carrel_schema.objects import Meta, Project, ProjectSpec
from contract.ledger.store_tools import workload
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import (
    DEPLOY,
    MARKS,
    ROOT,
    ApiUser,
    CommandResult,
    Kubectl,
    client,
    installed,
    kubectl,
    ours,
    until,
)
from k8s.stores import KubernetesStores, stores

__all__ = ["client", "installed", "kubectl", "ours", "stores"]

pytestmark = MARKS
PAGE: Final = ROOT / "docs" / "kubernetes-rights.md"
ACCOUNTS: Final = "system:serviceaccount:carrel-system"
WHO: Final[Mapping[str, tuple[str, list[str]]]] = {
    "a": ("ada", ["project-a"]),
    "b": ("bob", ["project-b"]),
    "admin": ("root-of-carrel", ["carrel-admins"]),
    "scheduler": (f"{ACCOUNTS}:carrel-scheduler", ["system:serviceaccounts"]),
    "hub": (f"{ACCOUNTS}:carrel-hub", ["system:serviceaccounts"]),
}
LAST: Final = {
    ("create", "trainings.carrel.dev", "carrel-b"),
    ("create", "pods", "carrel-a"),
    ("create", "pods/binding", "carrel-a"),
}
"""Rows of the page whose rights are written last."""


def rows() -> Iterator[dict[str, str]]:
    """The page's table."""
    lines = PAGE.read_text("utf-8").partition("## The table")[2].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    head, _, *body = table
    for cells in body:
        yield dict(zip(head, cells, strict=True))


def may(plane: ControlPlane, who: str, row: Mapping[str, str]) -> bool:
    user, groups = WHO[who]
    what, _, sub = row["what"].partition("/")
    resource, _, group = what.partition(".")
    where = "" if row["where"] in ("cluster", "everywhere") else row["where"]
    asked = {"verb": row["verb"], "resource": resource, "group": group, "namespace": where}
    asked |= {"name": sub} if resource == "leases" else {"subresource": sub}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": [*groups, "system:authenticated"],
            "resourceAttributes": asked,
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(plane.ask("POST", path, body)["status"]["allowed"])


@pytest.fixture
async def projects(installed: ControlPlane, client: KubeClient, stores: KubernetesStores) -> None:
    """The namespaces of the projects a and b, as the scheduler makes them."""
    store = await stores.open()
    controller = Namespaces(
        store,
        client,
        system="carrel-system",
        checkpoints=Checkpoints(size="1Gi"),
        chance=random.random,
    )
    for name in ("a", "b"):
        project = await store.create(Project(meta=Meta(name=name), spec=ProjectSpec()))
        await controller.ensure(project)
    # The API server hears of rights a moment after they are written, each kind in its order.
    last = [row for row in rows() if (row["verb"], row["what"], row["where"]) in LAST]
    assert len(last) == len(LAST)
    await asyncio.to_thread(until, lambda: not wrong_cells(installed, last), "rights of the page")


def wrong_cells(plane: ControlPlane, asked: Iterable[Mapping[str, str]]) -> list[str]:
    """Which of these rows of the page are not as things are."""
    return [
        f"{who} may {'' if expected == 'no' else 'not '}{row['verb']} {row['what']}"
        f" in {row['where']}"
        for row in asked
        for who in WHO
        if may(plane, who, row) != ((expected := row[who]) == "yes")
    ]


def training(user: str, namespace: str = "carrel-a", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": "Training",
        "metadata": {"name": "policies", "namespace": namespace, **metadata},
        "spec": {"user": user, "command": ["true"]},
    }


def pod(**spec: Any) -> dict[str, Any]:
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "one", "image": "none", "securityContext": secure}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "guest", "namespace": "carrel-a"},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            **spec,
        },
    }


def somebody(plane: ControlPlane, who: str) -> ApiUser:
    """Requests as one of the accounts."""
    return ApiUser(plane, *WHO[who])


@pytest.mark.usefixtures("projects")
class TestRights:
    """One installation, two projects."""

    def test_every_cell_of_the_page(self, installed: ControlPlane) -> None:
        assert not wrong_cells(installed, rows())
        assert len(list(rows())) > 50

    def test_kubectl_says_the_same(self, kubectl: Kubectl) -> None:
        asked = ("auth", "can-i", "create", "trainings.carrel.dev", "-n", "carrel-a")
        for who, answer in (("a", "yes"), ("b", "no"), ("admin", "yes"), ("hub", "no")):
            user, groups = WHO[who]
            known = (f"--as={user}", *(f"--as-group={one}" for one in groups))
            assert kubectl.run(*asked, *known).out.strip() == answer

    def test_of_a_claim_for_devices_the_scheduler_writes_the_allocation_only(
        self, installed: ControlPlane
    ) -> None:
        exactly = {"deviceClassName": "gpu.nvidia.com"}
        body = {
            "metadata": {"name": "devices"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        installed.ask("POST", RESOURCE_CLAIMS.path("carrel-a"), body)
        scheduler = somebody(installed, "scheduler")

        def patched(change: dict[str, Any], sub: str = "") -> str:
            return scheduler.patch(RESOURCE_CLAIMS, "devices", change, "carrel-a", sub).error

        finalizer = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
        result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}
        given = {"allocation": {"devices": {"results": [result]}}}
        user = {"resource": "pods", "name": "p", "uid": "u"}
        allocated = {"status": {**given, "reservedFor": [user]}}
        other = {"status": {**given, "reservedFor": [{**user, "resource": "widgets"}]}}
        label = {"metadata": {"labels": {"a": "b"}}}
        until(lambda: "only that it is allocated" in patched(label), "the policy")
        assert not patched(finalizer)
        assert "only that it is allocated" in patched({"metadata": {"finalizers": ["mine.dev/x"]}})
        assert not patched(allocated, "status")
        assert "reserves claims for pods" in patched(other, "status")

    def test_claims_that_the_scheduler_makes_are_those_of_extended_resources(
        self, installed: ControlPlane
    ) -> None:
        mark = "resource.kubernetes.io/extended-resource-claim"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
        exactly = {"deviceClassName": "gpu.nvidia.com"}

        def made(name: str, **meta: Any) -> dict[str, Any]:
            return {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "carrel-a", **meta},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
            }

        special = {"annotations": {mark: "true"}, "ownerReferences": [owner]}
        words = "claims for extended resources of a pod"
        until_refused(installed, made("theirs"), "scheduler", words)
        until_refused(installed, made("bare", annotations={mark: "true"}), "scheduler", words)
        scheduler = somebody(installed, "scheduler")
        accepted = scheduler.create(made("ours", **special))
        assert accepted.code == 0, accepted.error
        installed.ask("POST", RESOURCE_CLAIMS.path("carrel-a"), made("kept"))
        told = scheduler.delete(RESOURCE_CLAIMS, "kept", "carrel-a")
        assert words in told.error

    def test_work_is_made_in_ones_own_name(self, installed: ControlPlane) -> None:
        until_refused(installed, training("bob"), "a", "spec.user: ada is right")
        assert somebody(installed, "a").create(training("ada")).code == 0
        assert somebody(installed, "admin").create(training("ada")).code == 0

    def test_marks_are_the_schedulers(self, installed: ControlPlane) -> None:
        copied = training("ada", labels={"carrel.dev/uid": "copied"})
        until_refused(installed, copied, "a", "carrel.dev/uid is the scheduler's own")
        owned = training("ada")
        owned["spec"]["owner"] = "somebody"
        until_refused(installed, owned, "a", "spec.owner is said of parts")
        blamed = training("ada")
        blamed["spec"]["askedBy"] = "root-of-carrel"
        until_refused(installed, blamed, "a", "spec.askedBy is who asks")

    async def test_of_running_work_only_its_end_is_changed(
        self, installed: ControlPlane, stores: KubernetesStores
    ) -> None:
        store = await stores.open()
        await store.create(workload("running", "a"))

        def patched(body: dict[str, Any], who: str = "a") -> CommandResult:
            training = kinds.WORK["training"].resource
            return somebody(installed, who).patch(training, "running", body, "carrel-a")

        assert patched({"spec": {"suspend": True}}).code == 0
        more = {"spec": {"resources": {"gpus": 8}}}

        words = "only suspend, resumes and delete change"
        until(lambda: words in patched(more).error, "refusal")
        assert patched({"spec": {"files": None}}).code
        assert patched(more, "scheduler").code == 0
        older = {"metadata": {"annotations": {"carrel.dev/created-at": "0.0"}}}
        until(lambda: "are the scheduler's own" in patched(older).error, "refusal")

    def test_no_pod_gets_past_the_queue(self, installed: ControlPlane) -> None:
        workspace = pod()
        workspace["metadata"]["labels"] = {"carrel.dev/kind": "workspace"}
        until_refused(installed, workspace, "hub", "schedulerName: carrel is right")
        placed = pod(schedulerName="carrel", nodeName="node-1")
        until_refused(installed, placed, "scheduler", "spec.nodeName is chosen by Carrel")

    def test_who_gives_gpus_says_which(self, installed: ControlPlane) -> None:
        def told(**variable: Any) -> dict[str, Any]:
            made = pod(schedulerName="carrel")
            made["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
            (container,) = made["spec"]["containers"]
            container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", **variable}]
            return made

        until_refused(installed, told(value="all"), "scheduler", "is said by who gives GPUs")
        elsewhere = {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}}
        until_refused(
            installed, told(valueFrom=elsewhere), "scheduler", "is said by who gives GPUs"
        )
        until_refused(installed, told(value="void"), "scheduler", "or a MIG instance, takes")
        bound = {"fieldRef": {"fieldPath": f"metadata.annotations['{GPU_UUIDS}']"}}
        accepted = somebody(installed, "scheduler").create(told(valueFrom=bound))
        assert accepted.code == 0, accepted.error

    def test_reservations_are_made_by_the_scheduler_alone(self, installed: ControlPlane) -> None:
        made = reservation.manifest("n1", 0, ReservationSettings("none"))
        assert somebody(installed, "scheduler").create(made).code == 0
        for who in ("admin", "a", "hub"):
            assert somebody(installed, who).create(made).code
        made["spec"]["hostNetwork"] = True
        assert somebody(installed, "scheduler").create(made).code

    def test_only_restricted_pods_are_taken(self, installed: ControlPlane) -> None:
        loose = pod(schedulerName="carrel", hostNetwork=True)
        told = somebody(installed, "scheduler").create(loose)
        assert 'violates PodSecurity "restricted' in told.error

    def test_the_scheduler_gives_nobody_more_than_it_may(self, installed: ControlPlane) -> None:
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "too-much", "namespace": "carrel-a"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ada"}],
        }
        told = somebody(installed, "scheduler").create(binding)
        assert "attempting to grant RBAC permissions not currently held" in told.error

    def test_priorities_are_the_named_levels(self, kubectl: Kubectl) -> None:
        listed = json.loads(kubectl("get", "priorityclasses", "-o", "json"))["items"]
        found = {one["metadata"]["name"]: one["value"] for one in listed}
        assert {f"carrel-{name}": value for name, value in NAMED.items()}.items() <= found.items()

    def test_pods_of_the_installation_are_restricted(self, kubectl: Kubectl) -> None:
        """Deployments only warn about pods that would be refused: no warning is given."""
        told = kubectl.run(
            *("apply", "--server-side", "--force-conflicts", "--dry-run=server"), "-k", str(DEPLOY)
        )
        assert told.code == 0
        assert "PodSecurity" not in told.error

    def test_with_postgresql_no_file_is_needed(self, kubectl: Kubectl, tmp_path: Path) -> None:
        base = Path(os.path.relpath(DEPLOY, tmp_path.resolve()))
        overlay = {"resources": [f"{base}"], "components": [f"{base}/components/postgresql"]}
        (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
        text = kubectl("kustomize", str(tmp_path.resolve()))
        assert "claimName: carrel-scheduler" not in text
        deployments = [
            one for one in yaml.load_all(text, yaml.CSafeLoader) if one["kind"] == "Deployment"
        ]
        names = [one["metadata"]["name"] for one in deployments]
        scheduler = deployments[names.index("carrel-scheduler")]["spec"]
        (container,) = scheduler["template"]["spec"]["containers"]
        assert "CARREL_DATABASE_URL" in {one["name"] for one in container["env"]}
        # The second one waits, listens nowhere, and is not to be ended for it.
        assert scheduler["replicas"] == 2
        assert "readinessProbe" in container
        assert not {"startupProbe", "livenessProbe"} & container.keys()


def until_refused(plane: ControlPlane, manifest: dict[str, Any], who: str, words: str) -> None:
    """Try until it is refused with these words: policies are in force after a moment."""
    heard: list[str] = []

    def refused() -> bool:
        told = somebody(plane, who).create(manifest)
        heard.append(told.error)
        return bool(told.code) and words in told.error

    try:
        until(refused, f"refusal that says: {words}")
    except AssertionError as error:
        raise AssertionError(f"{error}; the last one says: {heard[-1]}") from error
