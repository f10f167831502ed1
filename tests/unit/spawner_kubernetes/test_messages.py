"""Names, labels, and what a cluster says as its people hear it."""

import json
from types import SimpleNamespace

import pytest

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.kubernetes.tasks import task_pods as task_names
from carrel_schema.names import TASK
from carrel_spawner.kubernetes import manifests, messages
from carrel_spawner.kubernetes.manifests import WorkspaceStorage
from carrel_spawner.workspace import Address

ADDRESS = Address("vision", "workspace-ada", "4f0c", 8888, 2)


def test_scheduler_and_spawner_find_a_pod_by_the_same_names() -> None:
    assert manifests.task_id(ADDRESS) == str(TaskId("4f0c", 0, 2))
    assert manifests.pod_labels(ADDRESS, "ada")[TASK] == task_names.pod_name(TaskId("4f0c", 0, 2))


def test_every_start_has_a_name_of_its_own_that_is_found_again() -> None:
    again = Address("vision", "workspace-ada", "4f0c", 8888, 3)
    same = Address("vision", "workspace-ada", "4f0c", 8888, 2)
    assert manifests.name_suffix(ADDRESS) == manifests.name_suffix(same)
    assert manifests.name_suffix(ADDRESS) != manifests.name_suffix(again)


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        (
            "Pulling", 'Pulling image "lab/desk:1"',
            "Fetching the image `lab/desk:1`; the first time this takes longer.",
        ),
        (
            "Pulled",
            'Successfully pulled image "lab/desk:1" in 1m2.5s (1m2.5s including waiting).',
            "The image is there after 62 s.",
        ),
        ("Pulled", 'Container image "lab/desk:1" already present', "The image is there."),
        ("Started", "Started container notebook",
         "The workspace runs; JupyterLab is starting."),
        (
            "Failed",
            'Failed to pull image "lab/desk:2": rpc error: code = NotFound: lab/desk:2: not found',
            "The image `lab/desk:2` could not be fetched; it is tried again. not found.",
        ),
        ("BackOff", 'Back-off pulling image "lab/desk:2"',
         "The image `lab/desk:2` could not be fetched; it is tried again. "),
        ("BackOff", "Back-off restarting failed container",
         "The workspace ended at once; it is tried again."),
        (
            "FailedMount", "timed out waiting for the disk",
            "The volume with your files is not there yet: timed out waiting for the disk.",
        ),
        ("FailedScheduling", "0/4 nodes are available", None),
        ("TaintManagerEviction", "Cancelling deletion of Pod", None),
    ],
)  # fmt: skip
def test_news_of_a_pod_in_plain_words(reason: str, message: str, expected: str | None) -> None:
    found = messages.event_message({"reason": reason, "message": message})
    assert (found.sentence if found else None) == expected


@pytest.mark.parametrize(
    ("status", "message", "reason", "code", "part"),
    [
        (404, 'namespaces "carrel-vision" not found', "cluster", 503, "is not there yet"),
        (403, "exceeded quota: storage", "quota", 409, "is full: exceeded quota: storage"),
        (
            403,
            "error looking up service account carrel-vision/default",
            "cluster",
            503,
            "is not there",
        ),
        (403, "violates PodSecurity", "cluster", 403, "an admin has to look: violates Pod"),
        (500, "etcd is away", "cluster", 502, "The cluster refused the workspace: etcd is away"),
    ],
)
def test_what_a_cluster_refuses_is_a_sentence(
    status: int, message: str, reason: str, code: int, part: str
) -> None:
    body = json.dumps({"message": message})
    error = SimpleNamespace(status=status, reason="Reason", body=body)
    refused = messages.refusal_of(error, "vision")
    assert (refused.reason, refused.status_code) == (reason, code)
    assert part in refused.jupyterhub_message


def test_an_answer_that_is_no_status_is_told_by_its_reason() -> None:
    error = SimpleNamespace(status=502, reason="Bad Gateway", body="<html>")
    assert "Bad Gateway" in messages.refusal_of(error, "vision").jupyterhub_message


def test_a_cluster_that_is_too_slow_is_a_sentence() -> None:
    refused = messages.timed_out(TimeoutError("Could not create pod carrel-vision/desk"))
    assert (refused.reason, refused.status_code) == ("cluster", 504)
    assert "Could not create pod" in refused.jupyterhub_message


def test_the_secret_has_what_opens_a_door_and_nothing_else() -> None:
    environment = {"JUPYTERHUB_API_TOKEN": "t", "JUPYTERHUB_USER": "ada", "CPU_LIMIT": 2}
    made = manifests.secret_manifest("desk", environment, {"a": "b"})
    assert made["data"] == {"JUPYTERHUB_API_TOKEN": "dA=="}
    assert made["metadata"] == {"name": "desk", "labels": {"a": "b"}}


def test_a_claim_asks_for_the_class_only_if_one_is_said() -> None:
    made = manifests.volume_claim(WorkspaceStorage("project", "5Gi", "", ["ReadWriteMany"]), {})
    assert made["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "5Gi"}},
    }
    fast = manifests.volume_claim(WorkspaceStorage("project", "5Gi", "fast", ["ReadWriteOnce"]), {})
    assert fast["spec"]["storageClassName"] == "fast"
