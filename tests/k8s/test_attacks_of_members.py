"""Attacks on a real API server by those who bring work: a member, and whoever submits pods.

Each asks for what has to be refused, beside one of its kind that has to be done.
"""

import json
from typing import Any

import pytest

from carrel_scheduler.kube.resources import PODS
from carrel_scheduler.ledger.resources import kinds
from k8s import access
from k8s.attacks import (
    RBAC,
    binding,
    board,
    cluster,
    default_account,
    epoch,
    pod,
    somebody,
    training,
)
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import MARKS, ApiUser, Kubectl, installed, kubectl, ours, until

__all__ = ["cluster", "installed", "kubectl", "ours"]

pytestmark = MARKS
BOARDS, TRAININGS = (kinds.WORK[kind].resource for kind in ("tensorboard", "training"))


@pytest.mark.usefixtures("cluster")
class TestAMember:
    """With ``kubectl`` and the rights of a researcher."""

    @pytest.fixture
    def ada(self, installed: ControlPlane) -> ApiUser:
        return somebody(installed, "ada")

    @pytest.fixture
    def admin(self, installed: ControlPlane) -> ApiUser:
        """Whose objects are kept."""
        return ApiUser(installed, "", kept=True)

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
    def test_a_tensorboard_is_lent_to_no_other_program(
        self, ada: ApiUser, lent: dict[str, Any]
    ) -> None:
        assert ada.create(board()).code == 0
        told = ada.create(board(**lent))
        assert told.code
        assert "a program of its own" in told.error

    def test_it_is_lent_to_none_by_a_change_either(self, ada: ApiUser, admin: ApiUser) -> None:
        assert admin.create(board(name="changed")).code == 0
        command = {"spec": {"command": ["/tmp/evil", "-I", "-m", "carrel.job.tensorboard"]}}
        told = ada.patch(BOARDS, "changed", command, "carrel-vision")
        assert "a program of its own" in told.error
        events = {"spec": {"tensorboard": {"jobs": ["a"], "events": ["uid-of-others"]}}}
        told = ada.patch(BOARDS, "changed", events, "carrel-vision")
        assert "leave them out" in told.error
        admin.delete(BOARDS, "changed", "carrel-vision")

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
        self, ada: ApiUser, admin: ApiUser, said: dict[str, Any]
    ) -> None:
        assert ada.create(training(command=["true"])).code == 0
        assert "leave" in ada.create(training(command=["true"], **said)).error
        assert admin.create(training(command=["true"], name="open")).code == 0
        told = ada.patch(TRAININGS, "open", {"spec": said}, "carrel-vision")
        assert told.code
        assert "leave" in told.error
        admin.delete(TRAININGS, "open", "carrel-vision")

    def test_a_status_is_written_by_nobody_else(self, ada: ApiUser, admin: ApiUser) -> None:
        assert admin.create(training(command=["true"], name="open")).code == 0
        body = {"status": {"phase": "succeeded"}}
        told = ada.patch(TRAININGS, "open", body, "carrel-vision", "status")
        assert "forbidden" in told.error.lower()
        # With the object itself it is dropped.
        assert ada.patch(TRAININGS, "open", body, "carrel-vision").code == 0
        made = {**training(command=["true"], name="with-status"), **body}
        assert admin.create(made).code == 0
        found = json.loads(admin.get(TRAININGS, "carrel-vision", "with-status").out)
        assert found.get("status", {}).get("phase") is None
        for name in ("open", "with-status"):
            admin.delete(TRAININGS, name, "carrel-vision")

    def test_owners_are_references_that_controllers_write(self, ada: ApiUser) -> None:
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
    def sue(self, installed: ControlPlane) -> ApiUser:
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
        for one in (role, *bound):
            access.make(installed, access.place(one), one)
        for where in ("carrel-vision", "theirs"):
            default_account(installed, where)
        sue = somebody(installed, "submitter")
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
        self, sue: ApiUser, where: str, labels: dict[str, str], notes: dict[str, str]
    ) -> None:
        assert "leave them out" in sue.create(pod(where, labels, notes)).error

    def test_no_pod_and_no_job_names_an_owner_of_its_choice(self, sue: ApiUser) -> None:
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
        self, sue: ApiUser, installed: ControlPlane, kubectl: Kubectl
    ) -> None:
        labels = {"carrel.dev/project": "vision", "kueue.x-k8s.io/queue-name": "vision", "app": "a"}
        spec = pod("carrel-vision", labels, name="runs")["spec"]
        spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
        made = pod("carrel-vision", labels, name="runs") | {"spec": spec}
        access.make(installed, "/api/v1/namespaces/carrel-vision/pods", made)
        free = {"metadata": {"labels": {"carrel.dev/priority": "train"}}}
        assert sue.patch(PODS, "runs", free, "carrel-vision").code == 0
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
            told = sue.patch(PODS, "runs", {"metadata": change}, "carrel-vision")
            assert "counts as when it got it" in told.error, change
        other = {"metadata": {"labels": {"app": "b"}}}
        assert sue.patch(PODS, "runs", other, "carrel-vision").code == 0
        larger = {"requests": {"cpu": "64"}, "limits": {"cpu": "64"}}
        body = {"spec": {"containers": [{"name": "one", "resources": larger}]}}
        words = ("patch", "pod", "runs", "-n", "carrel-vision", "--subresource=resize")
        told = kubectl.run(
            *words, "-p", json.dumps(body), "--as=sue", "--as-group=submitters", "--dry-run=server"
        )
        assert "make a new one of another size" in told.error
        kubectl("delete", "pod", "runs", "-n", "carrel-vision", "--force", "--grace-period=0")
