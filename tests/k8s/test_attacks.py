"""Attacks on a real API server with the whole installation, by a member and by parts.

A part is whoever has the token of its service account.

Each asks for what has to be refused, beside one of its kind that has to be done. Nothing is really
made (``--dry-run=server``): admission is the same.
"""

import asyncio
import copy
import json
import random
from collections.abc import Mapping
from typing import Any, Final

import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.workloads.namespaces import manifests
from carrel_scheduler.workloads.namespaces.controller import Namespaces
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_schema.objects import Meta, Project, ProjectSpec
from k8s import access
from k8s.cluster.control_plane import ControlPlane, Refused
from k8s.ours import DEPLOY, MARKS, Kubectl, Told, client, kubectl, make_namespace, ours, until
from k8s.stores import KubernetesStores, stores

__all__ = ["client", "kubectl", "ours", "stores"]

pytestmark = MARKS
ACCOUNTS: Final = "system:serviceaccount:carrel-system"
WHO: Final[Mapping[str, tuple[str, list[str]]]] = {
    "ada": ("ada", ["project-vision"]),
    "submitter": ("sue", ["submitters"]),
    "scheduler": (f"{ACCOUNTS}:carrel-scheduler", ["system:serviceaccounts"]),
    "hub": (f"{ACCOUNTS}:carrel-hub", ["system:serviceaccounts"]),
}
RBAC: Final = "rbac.authorization.k8s.io"
LIMITS: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class As:
    """``kubectl`` as somebody; nothing is kept."""

    def __init__(self, kubectl: Kubectl, who: str) -> None:
        user, groups = WHO[who]
        self._kubectl = kubectl
        self._words = (f"--as={user}", *(f"--as-group={one}" for one in groups))
        self._dry = "--dry-run=server"

    def create(self, manifest: Mapping[str, Any]) -> Told:
        text = json.dumps(manifest)
        return self._kubectl.run("create", "-f", "-", *self._words, self._dry, given=text)

    def patch(self, what: str, name: str, body: Any, namespace: str = "", *more: str) -> Told:
        where = ("-n", namespace) if namespace else ()
        words = ("patch", what, name, *where, "--type=merge", "-p", json.dumps(body), *more)
        return self._kubectl.run(*words, *self._words, self._dry)

    def delete(self, what: str, name: str, namespace: str = "") -> Told:
        where = ("-n", namespace) if namespace else ()
        return self._kubectl.run("delete", what, name, *where, *self._words, self._dry)


@pytest.fixture(scope="module")
def installed(ours: ControlPlane, kubectl: Kubectl) -> ControlPlane:
    """A cluster with the whole installation, but for what runs in it."""
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(DEPLOY))
    return ours


@pytest.fixture
async def cluster(
    installed: ControlPlane, client: KubeClient, stores: KubernetesStores, kubectl: Kubectl
) -> None:
    """Two projects as the scheduler makes them, one other namespace, and policies in force."""
    store = await stores.open()
    controller = Namespaces(
        store,
        client,
        system="carrel-system",
        checkpoints=Checkpoints(size=""),
        chance=random.random,
    )
    for name in ("vision", "speech"):
        notes = {"metadata": {"annotations": {"carrel.dev/adopt": name}}}
        installed.ask("PATCH", f"/api/v1/namespaces/carrel-{name}", notes)
        project = await store.create(Project(meta=Meta(name=name), spec=ProjectSpec()))
        await controller.ensure(project)
    # Of a project, without what the scheduler puts into it.
    make_namespace(installed, "carrel-bare", **manifests.namespace("bare")["metadata"]["labels"])
    make_namespace(installed, "theirs", **{"pod-security.kubernetes.io/enforce": "baseline"})
    scheduler, ada = As(kubectl, "scheduler"), As(kubectl, "ada")
    in_force = {
        "policies": lambda: "restricted pods only" in scheduler.create(namespace("x", {})).error,
        "rights": lambda: not scheduler.create(binding("carrel-bare")).code,
        "marks": lambda: "leave it out" in ada.create(owned()).error,
    }
    for what, holds in in_force.items():
        await asyncio.to_thread(until, holds, f"{what} in force", 30.0)


def namespace(project: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    made = manifests.namespace(project)
    if labels is not None:
        made["metadata"]["labels"] = dict(labels)
    return made


def binding(where: str, role: str = "carrel-tasks", **changes: Any) -> dict[str, Any]:
    subject = {"kind": "ServiceAccount", "name": "carrel-scheduler", "namespace": "carrel-system"}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": changes.pop("name", role), "namespace": where},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
        **changes,
    }


def pod(where: str = "carrel-vision", labels: Any = None, notes: Any = None, **spec: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": spec.pop("name", "attack"),
            "namespace": where,
            "labels": labels or {},
            "annotations": notes or {},
            **({"ownerReferences": spec.pop("owners")} if "owners" in spec else {}),
        },
        "spec": {
            "schedulerName": "carrel",
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "one", "image": "none", "securityContext": LIMITS}],
            **spec,
        },
    }


def training(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": spec.pop("kind", "Training"),
        "metadata": {"name": spec.pop("name", "attack"), "namespace": "carrel-vision"},
        "spec": {"user": "ada", **spec},
    }


def owned() -> dict[str, Any]:
    return training(command=["true"], owner="somebody")


def board(**spec: Any) -> dict[str, Any]:
    return training(kind="TensorBoard", tensorboard={"jobs": ["a"]}, **spec)


@pytest.mark.usefixtures("cluster")
class TestTheSchedulersToken:
    """What whoever steals it can not do."""

    @pytest.fixture
    def scheduler(self, kubectl: Kubectl) -> As:
        return As(kubectl, "scheduler")

    def test_it_makes_namespaces_of_projects_and_no_others(self, scheduler: As) -> None:
        assert scheduler.create(namespace("unheard")).code == 0
        labels = manifests.namespace("unheard")["metadata"]["labels"]
        enforce = "pod-security.kubernetes.io/enforce"
        for wrong in (
            {key: text for key, text in labels.items() if key != enforce},
            labels | {enforce: "privileged"},
            labels | {"pod-security.kubernetes.io/audit": "privileged"},
            labels | {"pod-security.kubernetes.io/enforce-version": "v1.1"},
            labels | {"carrel.dev/project": "vision"},
        ):
            told = scheduler.create(namespace("unheard", wrong))
            assert "denied" in told.error, wrong
        other = namespace("unheard")
        other["metadata"]["name"] = "innocent"
        assert "carrel-<project>" in scheduler.create(other).error

    @pytest.mark.parametrize("where", ["carrel-system", "kube-system", "theirs", "default"])
    def test_it_changes_and_ends_no_namespace_that_is_not_a_projects(
        self, scheduler: As, where: str
    ) -> None:
        for labels in (
            {"pod-security.kubernetes.io/enforce": "privileged"},
            {"pod-security.kubernetes.io/enforce": None},
            {"carrel.dev/project": where.removeprefix("carrel-")},
        ):
            told = scheduler.patch("namespace", where, {"metadata": {"labels": labels}})
            assert "denied" in told.error, labels
        assert scheduler.delete("namespace", where).code

    def test_it_loosens_no_projects_namespace(self, scheduler: As) -> None:
        for labels in (
            {"pod-security.kubernetes.io/enforce": "privileged"},
            {"pod-security.kubernetes.io/enforce": None},
            {"pod-security.kubernetes.io/enforce-version": "v1.1"},
            {"pod-security.kubernetes.io/audit": "privileged"},
            {"carrel.dev/project": "speech"},
            {"carrel.dev/made-by": "somebody"},
            {"team": "x"},
        ):
            told = scheduler.patch("namespace", "carrel-vision", {"metadata": {"labels": labels}})
            assert "denied" in told.error, labels
        adopted = {"metadata": {"annotations": {"carrel.dev/adopt": "speech"}}}
        assert "denied" in scheduler.patch("namespace", "carrel-vision", adopted).error
        left = {"metadata": {"labels": {"carrel.dev/project": None}}}
        assert scheduler.patch("namespace", "carrel-vision", left).code == 0

    @pytest.mark.parametrize("where", ["kube-system", "carrel-system", "theirs", "default"])
    def test_it_gives_itself_rights_in_no_other_namespace(self, scheduler: As, where: str) -> None:
        assert "in the namespaces of projects only" in scheduler.create(binding(where)).error

    def test_it_gives_three_roles_to_their_subjects_and_no_others(self, scheduler: As) -> None:
        here = "carrel-bare"
        assert scheduler.create(binding(here)).code == 0
        group = {"kind": "Group", "apiGroup": RBAC, "name": "project-vision"}
        members = binding(here, "carrel-researcher", subjects=[group])
        assert scheduler.create(members).code == 0
        everybody = {**group, "name": "system:authenticated"}
        person = {"kind": "User", "apiGroup": RBAC, "name": "ada"}
        account = {"kind": "ServiceAccount", "name": "default", "namespace": here}
        for wrong in (
            binding(here, name="another"),
            binding(here, "carrel-researcher", subjects=[everybody]),
            binding(here, "carrel-researcher", subjects=[person]),
            binding(here, subjects=[account]),
            binding(here, subjects=[group]),
            binding(here, subjects=[*members["subjects"], account]),
            binding(here, "carrel-workspaces"),
            binding(here, "cluster-admin", name="carrel-tasks"),
            binding(here, "carrel-tasks", name="carrel-researcher", subjects=[group]),
        ):
            told = scheduler.create(wrong)
            assert "denied" in told.error or "forbidden" in told.error, wrong

    def test_by_an_access_rule_it_gives_roles_of_people_and_no_others(self, scheduler: As) -> None:
        here, name = "carrel-bare", "carrel-access-1"
        person = {"kind": "User", "apiGroup": RBAC, "name": "ada"}
        given = binding(here, "carrel-viewer", name=name, subjects=[person])
        assert scheduler.create(given).code == 0
        nobody = {**person, "name": "system:anonymous"}
        everybody = {"kind": "Group", "apiGroup": RBAC, "name": "system:masters"}
        account = {"kind": "ServiceAccount", "name": "default", "namespace": here}
        for wrong in (
            binding(here, "carrel-viewer", name=name, subjects=[nobody]),
            binding(here, "carrel-viewer", name=name, subjects=[everybody]),
            binding(here, "carrel-viewer", name=name, subjects=[account]),
            binding(here, "carrel-tasks", name=name, subjects=[person]),
            binding(here, "cluster-admin", name=name, subjects=[person]),
            binding("carrel-system", "carrel-viewer", name=name, subjects=[person]),
        ):
            told = scheduler.create(wrong)
            assert "denied" in told.error or "forbidden" in told.error, wrong

    @pytest.mark.parametrize(
        "loose",
        [
            {"hostNetwork": True},
            {"hostPID": True},
            {"hostIPC": True},
            {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
            {"serviceAccountName": "builder"},
            {"automountServiceAccountToken": True},
            {"securityContext": {"runAsNonRoot": False}},
            {"securityContext": {"runAsNonRoot": True}},
            {"schedulerName": "default-scheduler"},
            {"containers": [{"name": "one", "image": "none"}]},
            {
                "containers": [
                    {"name": "one", "image": "none", "securityContext": {"privileged": True}}
                ]
            },
            {
                "volumes": [
                    {
                        "name": "token",
                        "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]},
                    }
                ]
            },
        ],
    )
    @pytest.mark.parametrize("who", ["scheduler", "hub"])
    def test_pods_of_scheduler_and_hub_reach_nothing_of_their_node(
        self, kubectl: Kubectl, installed: ControlPlane, who: str, loose: dict[str, Any]
    ) -> None:
        """Also in a namespace that takes any pod."""
        labels = {"carrel.dev/kind": "workspace"}
        assert As(kubectl, who).create(pod(labels=labels)).code == 0
        told = As(kubectl, who).create(pod(labels=labels, **copy.deepcopy(loose)))
        assert told.code
        assert "carrel" in told.error or "PodSecurity" in told.error

    def test_it_changes_and_ends_only_pods_that_it_places(
        self, scheduler: As, installed: ControlPlane
    ) -> None:
        for name, theirs in (("own", "carrel"), ("other", "default-scheduler")):
            made = pod("theirs", name=name, schedulerName=theirs)
            made["spec"]["serviceAccountName"] = "default"
            _account(installed, "theirs")
            access.make(installed, "/api/v1/namespaces/theirs/pods", made)
        condition = [{"type": "PodScheduled", "status": "False", "reason": "x"}]
        body = {"status": {"conditions": condition}}
        path, user = "/api/v1/namespaces/theirs/pods", WHO["scheduler"][0]
        installed.ask("PATCH", f"{path}/own/status?dryRun=All", body, user=user)
        with pytest.raises(Refused, match="whose schedulerName is carrel"):
            installed.ask("PATCH", f"{path}/other/status?dryRun=All", body, user=user)
        assert scheduler.delete("pod", "own", "theirs").code
        assert scheduler.delete("pod", "other", "theirs").code

    def test_it_binds_and_evicts_nothing_of_the_cluster_itself(
        self, scheduler: As, kubectl: Kubectl
    ) -> None:
        user, _ = WHO["scheduler"]
        for where in ("kube-system", "carrel-system"):
            for kind, version in (("binding", "v1"), ("eviction", "policy/v1")):
                body = {
                    "apiVersion": version,
                    "kind": kind.capitalize(),
                    "metadata": {"name": "any", "namespace": where},
                    **({"target": {"kind": "Node", "name": "n"}} if kind == "binding" else {}),
                }
                path = f"/api/v1/namespaces/{where}/pods/any/{kind}"
                told = kubectl.run(
                    "create", "--raw", path, "-f", "-", f"--as={user}", given=json.dumps(body)
                )
                assert told.code, (where, kind)
                assert "NotFound" not in told.error or "denied" in told.error

    def test_secrets_of_others_stay(self, scheduler: As, installed: ControlPlane) -> None:
        secret = {"metadata": {"name": "pull"}, "stringData": {"a": "b"}}
        path = "/api/v1/namespaces/carrel-vision/secrets"
        access.make(installed, path, secret)
        assert "belongs to its tasks" in scheduler.delete("secret", "pull", "carrel-vision").error
        for who in ("carrel-vision", "carrel-system"):
            free = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "x", "namespace": who},
            }
            assert scheduler.create(free).code


@pytest.mark.usefixtures("cluster")
class TestTheHubsToken:
    """It makes workspaces."""

    def test_it_ends_no_pod_and_no_secret_that_is_no_workspaces(
        self, kubectl: Kubectl, installed: ControlPlane
    ) -> None:
        hub = As(kubectl, "hub")
        _account(installed, "carrel-vision")
        path = "/api/v1/namespaces/carrel-vision"
        job = pod(name="job", labels={"carrel.dev/kind": "training"})
        desk = pod(name="desk", labels={"carrel.dev/kind": "workspace"})
        for one in (job, desk):
            access.make(installed, f"{path}/pods", one)
        access.make(installed, f"{path}/secrets", {"metadata": {"name": "pull"}})
        assert hub.delete("pod", "desk", "carrel-vision").code == 0
        assert "of workspaces only" in hub.delete("pod", "job", "carrel-vision").error
        assert "of workspaces only" in hub.delete("secret", "pull", "carrel-vision").error
        assert "of workspaces only" in hub.create(pod()).error
        for where in ("carrel-system", "kube-system", "theirs"):
            assert hub.create(pod(where, labels={"carrel.dev/kind": "workspace"})).code


@pytest.mark.usefixtures("cluster")
class TestAMember:
    """With ``kubectl`` and the rights of a researcher."""

    @pytest.fixture
    def ada(self, kubectl: Kubectl) -> As:
        return As(kubectl, "ada")

    @pytest.mark.parametrize(
        "lent",
        [
            {"command": ["python", "evil.py"]},
            {"command": ["/tmp/evil", "-I", "-m", "carrel.job.tensorboard"]},
            {"image": "evil"},
            {"routes": [{"port": 0}, {"name": "evil", "port": 23456, "access": "everyone"}]},
            {"files": {"a": "b"}},
            {"volumes": [{"source": "home", "destination": "a"}]},
            {"workingDir": "/evil"},
            {"environment": {"PYTHONPATH": "/evil"}},
        ],
    )
    def test_a_tensorboard_is_lent_to_no_other_program(self, ada: As, lent: dict[str, Any]) -> None:
        assert ada.create(board()).code == 0
        told = ada.create(board(**lent))
        assert told.code
        assert "a program of its own" in told.error

    def test_it_is_lent_to_none_by_a_change_either(
        self, ada: As, kubectl: Kubectl, installed: ControlPlane
    ) -> None:
        kubectl.apply(board(name="changed"))
        command = {"spec": {"command": ["/tmp/evil", "-I", "-m", "carrel.job.tensorboard"]}}
        told = ada.patch("tensorboard", "changed", command, "carrel-vision")
        assert "a program of its own" in told.error
        events = {"spec": {"tensorboard": {"jobs": ["a"], "events": ["uid-of-others"]}}}
        told = ada.patch("tensorboard", "changed", events, "carrel-vision")
        assert "leave them out" in told.error
        kubectl("delete", "tensorboard", "changed", "-n", "carrel-vision")

    @pytest.mark.parametrize(
        "said",
        [
            {"owner": "uid-of-others"},
            {"part": 7},
            {"continues": "uid-of-others"},
            {"holdForClaim": True},
            {"serverName": "x"},
            {"port": 8888},
            {"askedBy": "grace"},
        ],
    )
    def test_what_controllers_say_is_said_by_nobody_else(
        self, ada: As, kubectl: Kubectl, said: dict[str, Any]
    ) -> None:
        assert ada.create(training(command=["true"])).code == 0
        assert "leave" in ada.create(training(command=["true"], **said)).error
        kubectl.apply(training(command=["true"], name="open"))
        told = ada.patch("training", "open", {"spec": said}, "carrel-vision")
        assert told.code
        assert "leave" in told.error
        kubectl("delete", "training", "open", "-n", "carrel-vision")

    def test_a_status_is_written_by_nobody_else(self, ada: As, kubectl: Kubectl) -> None:
        kubectl.apply(training(command=["true"], name="open"))
        body = {"status": {"phase": "succeeded"}}
        told = ada.patch("training", "open", body, "carrel-vision", "--subresource=status")
        assert "forbidden" in told.error.lower()
        # With the object itself it is dropped.
        assert ada.patch("training", "open", body, "carrel-vision").code == 0
        made = {**training(command=["true"], name="with-status"), **body}
        kubectl.apply(made)
        found = json.loads(
            kubectl("get", "training", "with-status", "-n", "carrel-vision", "-o", "json")
        )
        assert found.get("status", {}).get("phase") is None
        kubectl("delete", "training", "open", "with-status", "-n", "carrel-vision")

    def test_owners_are_references_that_controllers_write(self, ada: As) -> None:
        forged = training(command=["true"])
        reference = {
            "apiVersion": "carrel.dev/v1alpha1",
            "kind": "Experiment",
            "name": "theirs",
            "uid": "11111111-2222-3333-4444-555555555555",
            "controller": True,
        }
        forged["metadata"]["ownerReferences"] = [reference]
        assert "written by controllers" in ada.create(forged).error


@pytest.mark.usefixtures("cluster")
class TestWhoBringsPods:
    """Somebody with the role ``carrel-submitter``, and more: whatever changes a pod."""

    @pytest.fixture
    def sue(self, kubectl: Kubectl, installed: ControlPlane) -> As:
        rules = [
            {"apiGroups": [""], "resources": ["pods", "pods/resize"], "verbs": ["*"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
        ]
        role = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "test-brings-pods"},
            "rules": rules,
        }
        subject = {"kind": "Group", "apiGroup": RBAC, "name": "submitters"}
        bound = [
            {
                **binding(where, "test-brings-pods", subjects=[subject]),
                "metadata": {"name": "test-brings-pods", "namespace": where},
            }
            for where in ("carrel-vision", "theirs")
        ]
        assert kubectl.apply(role, *bound).code == 0
        for where in ("carrel-vision", "theirs"):
            _account(installed, where)
        sue = As(kubectl, "submitter")
        until(lambda: sue.create(pod()).code == 0, "rights of the submitter")
        return sue

    @pytest.mark.parametrize("where", ["carrel-vision", "theirs"])
    @pytest.mark.parametrize(
        ("labels", "notes"),
        [
            ({"carrel.dev/task": "uid-0-0"}, {}),
            ({"carrel.dev/workload-uid": "uid"}, {}),
            ({"carrel.dev/forgotten": "yes"}, {}),
            ({}, {"carrel.dev/devices": "0,1"}),
            ({}, {"carrel.dev/epoch": "9"}),
            ({}, {"carrel.dev/counted-as": '{"project":"speech"}'}),
            ({}, {"carrel.dev/gpu-uuids": "GPU-1"}),
            ({}, {"carrel.dev/gpu-memory-mib": "99999"}),
            ({}, {"carrel.dev/gpu-reservations": "uid"}),
        ],
    )
    def test_marks_of_pods_are_the_schedulers(
        self, sue: As, where: str, labels: dict[str, str], notes: dict[str, str]
    ) -> None:
        assert "leave them out" in sue.create(pod(where, labels, notes)).error

    def test_no_pod_and_no_job_names_an_owner_of_its_choice(self, sue: As) -> None:
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "theirs",
            "uid": "11111111-2222-3333-4444-555555555555",
            "controller": True,
        }
        assert "written by controllers" in sue.create(pod(owners=[reference])).error
        template = {"spec": pod()["spec"] | {"restartPolicy": "Never"}}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "forged", "namespace": "carrel-vision"},
            "spec": {"template": template},
        }
        assert sue.create(job).code == 0
        job["metadata"] |= {"ownerReferences": [reference]}  # type: ignore[operator]
        assert "written by controllers" in sue.create(job).error

    def test_a_pod_that_runs_counts_as_when_it_was_placed(
        self, sue: As, installed: ControlPlane, kubectl: Kubectl
    ) -> None:
        labels = {"carrel.dev/project": "vision", "kueue.x-k8s.io/queue-name": "vision", "app": "a"}
        spec = pod("carrel-vision", labels, name="runs")["spec"]
        spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
        made = pod("carrel-vision", labels, name="runs") | {"spec": spec}
        access.make(installed, "/api/v1/namespaces/carrel-vision/pods", made)
        free = {"metadata": {"labels": {"carrel.dev/priority": "train"}}}
        assert sue.patch("pod", "runs", free, "carrel-vision").code == 0
        access.make(installed, "/api/v1/nodes", {"metadata": {"name": "n1"}})
        amounts = {"cpu": "128", "memory": "64Gi", "pods": "110"}
        size = {"status": {"capacity": amounts, "allocatable": amounts}}
        installed.ask("PATCH", "/api/v1/nodes/n1/status", size)
        notes = {"carrel.dev/epoch": epoch(installed)}
        bound = {
            "metadata": {"name": "runs", "annotations": notes},
            "target": {"kind": "Node", "name": "n1"},
        }
        access.make(installed, "/api/v1/namespaces/carrel-vision/pods/runs/binding", bound)
        changes: list[dict[str, Any]] = [
            {"labels": {"carrel.dev/project": None}},
            {"labels": {"kueue.x-k8s.io/queue-name": None}},
            {"labels": {"kueue.x-k8s.io/pod-group-name": "theirs"}},
            {"labels": {"carrel.dev/priority": "inference"}},
            {"annotations": {"carrel.dev/preemptible": "false"}},
            {"annotations": {"gpu-fraction": "0.1"}},
        ]
        for change in changes:
            told = sue.patch("pod", "runs", {"metadata": change}, "carrel-vision")
            assert "counts as when it got it" in told.error, change
        other = {"metadata": {"labels": {"app": "b"}}}
        assert sue.patch("pod", "runs", other, "carrel-vision").code == 0
        larger = {"requests": {"cpu": "64"}, "limits": {"cpu": "64"}}
        body = {"spec": {"containers": [{"name": "one", "resources": larger}]}}
        words = ("patch", "pod", "runs", "-n", "carrel-vision", "--subresource=resize")
        told = kubectl.run(
            *words, "-p", json.dumps(body), "--as=sue", "--as-group=submitters", "--dry-run=server"
        )
        assert "make a new one of another size" in told.error
        kubectl("delete", "pod", "runs", "-n", "carrel-vision", "--force", "--grace-period=0")


def epoch(plane: ControlPlane) -> str:
    """That of the lease, which is made where there is none."""
    path = "/apis/coordination.k8s.io/v1/namespaces/carrel-system/leases"
    lease = {"metadata": {"name": "carrel-scheduler"}, "spec": {"leaseTransitions": 1}}
    access.make(plane, path, lease)
    return str(plane.get(f"{path}/carrel-scheduler")["spec"]["leaseTransitions"])


def _account(plane: ControlPlane, where: str) -> None:
    access.make(
        plane, f"/api/v1/namespaces/{where}/serviceaccounts", {"metadata": {"name": "default"}}
    )
