"""Attacks on a real API server with the whole installation, by parts of it.

A part is whoever has the token of its service account.

Each asks for what has to be refused, beside one of its kind that has to be done. Nothing is really
made (``--dry-run=server``): admission is the same.
"""

import copy
from typing import Any

import pytest

from carrel_scheduler.kube.resources import LEASES, NAMESPACES, PODS, SECRETS
from carrel_scheduler.workloads.namespaces import manifests
from carrel_schema.names import EPOCH, LEASE
from k8s import access
from k8s.attacks import RBAC, WHO, binding, cluster, default_account, namespace, pod, somebody
from k8s.cluster.control_plane import ControlPlane, Refused
from k8s.ours import MARKS, ApiUser, installed, kubectl, ours, until

__all__ = ["cluster", "installed", "kubectl", "ours"]

pytestmark = MARKS


@pytest.mark.usefixtures("cluster")
class TestTheSchedulersToken:
    """What whoever steals it can not do."""

    @pytest.fixture
    def scheduler(self, installed: ControlPlane) -> ApiUser:
        return somebody(installed, "scheduler")

    def test_it_makes_namespaces_of_projects_and_no_others(self, scheduler: ApiUser) -> None:
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
        self, scheduler: ApiUser, where: str
    ) -> None:
        for labels in (
            {"pod-security.kubernetes.io/enforce": "privileged"},
            {"pod-security.kubernetes.io/enforce": None},
            {"carrel.dev/project": where.removeprefix("carrel-")},
        ):
            told = scheduler.patch(NAMESPACES, where, {"metadata": {"labels": labels}})
            assert "denied" in told.error, labels
        assert scheduler.delete(NAMESPACES, where).code

    def test_it_loosens_no_projects_namespace(self, scheduler: ApiUser) -> None:
        for labels in (
            {"pod-security.kubernetes.io/enforce": "privileged"},
            {"pod-security.kubernetes.io/enforce": None},
            {"pod-security.kubernetes.io/enforce-version": "v1.1"},
            {"pod-security.kubernetes.io/audit": "privileged"},
            {"carrel.dev/project": "speech"},
            {"carrel.dev/made-by": "somebody"},
            {"team": "x"},
        ):
            told = scheduler.patch(NAMESPACES, "carrel-vision", {"metadata": {"labels": labels}})
            assert "denied" in told.error, labels
        adopted = {"metadata": {"annotations": {"carrel.dev/adopt": "speech"}}}
        assert "denied" in scheduler.patch(NAMESPACES, "carrel-vision", adopted).error
        left = {"metadata": {"labels": {"carrel.dev/project": None}}}
        assert scheduler.patch(NAMESPACES, "carrel-vision", left).code == 0

    @pytest.mark.parametrize("where", ["kube-system", "carrel-system", "theirs", "default"])
    def test_it_gives_itself_rights_in_no_other_namespace(
        self, scheduler: ApiUser, where: str
    ) -> None:
        assert "in the namespaces of projects only" in scheduler.create(binding(where)).error

    def test_it_gives_three_roles_to_their_subjects_and_no_others(self, scheduler: ApiUser) -> None:
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

    def test_by_an_access_rule_it_gives_roles_of_people_and_no_others(
        self, scheduler: ApiUser
    ) -> None:
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
        self, installed: ControlPlane, who: str, loose: dict[str, Any]
    ) -> None:
        """Also in a namespace that takes any pod."""
        labels = {"carrel.dev/kind": "workspace"}
        assert somebody(installed, who).create(pod(labels=labels)).code == 0
        told = somebody(installed, who).create(pod(labels=labels, **copy.deepcopy(loose)))
        assert told.code
        assert "carrel" in told.error or "PodSecurity" in told.error

    def test_it_changes_and_ends_only_pods_that_it_places(
        self, scheduler: ApiUser, installed: ControlPlane
    ) -> None:
        for name, theirs in (("own", "carrel"), ("other", "default-scheduler")):
            made = pod("theirs", name=name, schedulerName=theirs)
            made["spec"]["serviceAccountName"] = "default"
            default_account(installed, "theirs")
            access.make(installed, "/api/v1/namespaces/theirs/pods", made)
        condition = [{"type": "PodScheduled", "status": "False", "reason": "x"}]
        body = {"status": {"conditions": condition}}
        path, user = "/api/v1/namespaces/theirs/pods", WHO["scheduler"][0]
        installed.ask("PATCH", f"{path}/own/status?dryRun=All", body, user=user)
        with pytest.raises(Refused, match="whose schedulerName is carrel"):
            installed.ask("PATCH", f"{path}/other/status?dryRun=All", body, user=user)
        assert scheduler.delete(PODS, "own", "theirs").code
        assert scheduler.delete(PODS, "other", "theirs").code

    def test_it_binds_and_evicts_nothing_of_the_cluster_itself(
        self, installed: ControlPlane
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
                with pytest.raises(Refused) as refused:
                    installed.ask("POST", PODS.path(where, "any", kind), body, user=user)
                assert refused.value.status != 404 or "denied" in refused.value.text

    def test_a_dry_run_of_a_binding_tells_it_whether_former_ones_are_fenced_off(
        self, installed: ControlPlane
    ) -> None:
        """In the namespace of its lease, also when nothing else of a pod may be changed there."""
        path, user = PODS.path("carrel-system", "nobody", "binding"), WHO["scheduler"][0]
        leases = LEASES.path("carrel-system")
        spec = {"leaseTransitions": 7}
        access.make(installed, leases, {"metadata": {"name": LEASE}, "spec": spec})
        epoch = installed.get(f"{leases}/{LEASE}")["spec"]["leaseTransitions"]

        def said(epoch: int) -> str:
            body = {
                "metadata": {"name": "nobody", "annotations": {EPOCH: str(epoch)}},
                "target": {"kind": "Node", "name": "n"},
            }
            with pytest.raises(Refused) as refused:
                installed.ask("POST", f"{path}?dryRun=All", body, user=user)
            return refused.value.text

        until(lambda: "not found" in said(epoch), "the policy hears of the lease")
        assert "is not that of the scheduler that leads" in said(epoch - 1)

    def test_secrets_of_others_stay(self, scheduler: ApiUser, installed: ControlPlane) -> None:
        secret = {"metadata": {"name": "pull"}, "stringData": {"a": "b"}}
        path = "/api/v1/namespaces/carrel-vision/secrets"
        access.make(installed, path, secret)
        assert "belongs to its tasks" in scheduler.delete(SECRETS, "pull", "carrel-vision").error
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
        self, installed: ControlPlane
    ) -> None:
        hub = somebody(installed, "hub")
        default_account(installed, "carrel-vision")
        path = "/api/v1/namespaces/carrel-vision"
        job = pod(name="job", labels={"carrel.dev/kind": "training"})
        desk = pod(name="desk", labels={"carrel.dev/kind": "workspace"})
        for one in (job, desk):
            access.make(installed, f"{path}/pods", one)
        access.make(installed, f"{path}/secrets", {"metadata": {"name": "pull"}})
        assert hub.delete(PODS, "desk", "carrel-vision").code == 0
        assert "of workspaces only" in hub.delete(PODS, "job", "carrel-vision").error
        assert "of workspaces only" in hub.delete(SECRETS, "pull", "carrel-vision").error
        assert "of workspaces only" in hub.create(pod()).error
        for where in ("carrel-system", "kube-system", "theirs"):
            assert hub.create(pod(where, labels={"carrel.dev/kind": "workspace"})).code
